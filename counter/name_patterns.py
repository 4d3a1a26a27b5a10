"""Patterns for the names of counters: regular expressions of RE2.

Whoever writes a namespace decides what runs for every name of every call, so the time that a match
takes must be bounded. RE2 needs time in proportion to the length of the name, whatever the pattern;
`re` may need ages for one short name.
"""

from collections.abc import Callable

import re2

# For the program and for what a match remembers. A pattern that needs more is refused.
_MEMORY_BYTES_MAX = 1 << 20


def compile_names(pattern: str) -> Callable[[str], bool]:
    """Whether a whole name matches. Raises ValueError, in RE2's words, for what is no pattern."""
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES_MAX
    options.never_capture = True  # groups only group, which is cheaper
    options.log_errors = False
    try:
        matcher = re2.compile(pattern.encode(), options)
    except UnicodeEncodeError:
        raise ValueError("half a character, a lone surrogate") from None
    except re2.error as error:
        # The words, and mostly the part of the pattern that they are about.
        words = error.args[0]
        text = words.decode(errors="replace") if isinstance(words, bytes) else str(words)
        raise ValueError(text) from None

    def matches(name: str) -> bool:
        return matcher.fullmatch(name.encode()) is not None

    return matches
