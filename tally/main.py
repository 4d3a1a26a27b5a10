"""The entry point of the command `tally`.

Nothing but the standard library is imported here before it is known to be there: the SDK installs
without what the command line needs, and then `tally` says what to install.
"""

import os
import sys
from collections.abc import Sequence

_CLI_MODULES = {"typer", "rich"}


def run() -> None:
    """What the installed script calls: runs one command and exits with its code."""
    sys.exit(main())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and answers its exit code. Shows no traceback, whatever happens."""
    try:
        from tally.commands.root import invoke
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _CLI_MODULES:
            raise
        print(
            f"tally: the command line needs {error.name}, which is not installed. "
            "Install it with: pip install 'tally[cli]'",
            file=sys.stderr,
        )
        return 1
    if os.environ.get("TALLY_TRACEBACK"):
        return invoke(arguments)
    try:
        return invoke(arguments)
    except Exception as error:
        from tally.output import complain

        complain(
            f"an error that nobody foresaw, {type(error).__name__}: {error}. "
            "Please report it with what TALLY_TRACEBACK=1 shows."
        )
        return 1
