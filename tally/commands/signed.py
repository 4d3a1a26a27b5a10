"""A command whose arguments may be negative numbers: `tally add plays title-1 -5`."""

import re
from itertools import islice

from typer import Context
from typer.core import TyperCommand, TyperOption

_NEGATIVE = re.compile(r"-\d[\d_]*")


class SignedArguments(TyperCommand):
    """Takes `-5` as an argument, and still reports options that it does not know."""

    # The base class names a private parent of typer's Context, which nothing else may import.
    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:  # type: ignore[override]
        with_value = {
            name
            for parameter in self.params
            if isinstance(parameter, TyperOption) and not parameter.is_flag
            for name in parameter.opts
        }
        options: list[str] = []
        positional: list[str] = []
        rest = iter(args)
        for each in rest:
            if each == "--":
                positional.extend(rest)
            elif each in with_value:
                options.extend([each, *islice(rest, 1)])
            elif len(each) > 1 and each.startswith("-") and not _NEGATIVE.fullmatch(each):
                options.append(each)
            else:
                positional.append(each)
        return super().parse_args(ctx, [*options, "--", *positional])
