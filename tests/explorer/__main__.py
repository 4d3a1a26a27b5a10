"""python -m tests.explorer [SCOPE...]: explores scopes, all of them if none is named."""

import sys
import time

from tests.explorer.explore import explore
from tests.explorer.scope import SCOPES


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in SCOPES]
    if unknown:
        print(f"no scope {unknown[0]!r}; the scopes are: {', '.join(SCOPES)}", file=sys.stderr)
        return 2
    wrong = 0
    for name in names or SCOPES:
        began_s = time.monotonic()
        found = explore(SCOPES[name])
        wrong += found.violation is not None
        print(f"{found}\n  in {time.monotonic() - began_s:.1f} s", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
