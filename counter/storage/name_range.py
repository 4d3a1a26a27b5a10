"""Ranges of counter names, as stores that keep them in order ask for them.

The order is that of the names' UTF-8 bytes, which is also that of their code points, so Python,
SQLite and Cassandra agree on it.
"""

from counter.settings import COUNTER_NAME_BYTES_MAX

_CODE_POINT_MAX = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)  # no name has them: they have no UTF-8
# Greater than every name: the greatest name is full of the greatest code point, of four bytes.
_BEYOND_ALL = chr(_CODE_POINT_MAX) * (COUNTER_NAME_BYTES_MAX // 4 + 1)


def name_range(prefix: str, after: str) -> tuple[str, str]:
    """The names that begin with `prefix` and come after `after`, as `first <= name < end`."""
    # Nothing lies between a name and the same with a NUL behind it.
    first = prefix if prefix > after else after + "\x00"
    return first, _end(prefix)


def _end(prefix: str) -> str:
    """The first string after all that begin with `prefix`."""
    kept = prefix.rstrip(chr(_CODE_POINT_MAX))  # what follows the greatest has another beginning
    if not kept:
        return _BEYOND_ALL
    following = ord(kept[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return kept[:-1] + chr(following)
