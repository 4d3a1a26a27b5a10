"""Texts of header blocks in Huffman's code (RFC 7541, section 5.2).

The library's machine takes half a byte at a time. Two steps of it are remembered as one, for every
state and byte that was met, which makes it more than twice as fast: callers with a deadline send a
new text with each call.
"""

from hpack.huffman_table import HUFFMAN_COMPLETE, HUFFMAN_EMIT_SYMBOL, HUFFMAN_FAIL, HUFFMAN_TABLE

_Step = tuple[int, bytes, int]  # the state after a byte, what it gives, whether a text may end so


class NotHuffman(Exception):
    """No text is coded like this."""


class _Steps(dict[int, _Step]):
    """By state * 256 + byte: at most 65,536."""

    def __missing__(self, key: int) -> _Step:
        state, byte = divmod(key, 256)
        given, flags = b"", 0
        for half in (byte >> 4, byte & 0x0F):
            state, flags, symbol = HUFFMAN_TABLE[state * 16 + half]
            if flags & HUFFMAN_FAIL:
                raise NotHuffman
            if flags & HUFFMAN_EMIT_SYMBOL:
                given += bytes((symbol,))
        step = self[key] = (state, given, flags & HUFFMAN_COMPLETE)
        return step


_steps = _Steps()


def decoded(text: bytes) -> bytes:
    """Raises `NotHuffman`."""
    state, plain, may_end = 0, bytearray(), 1
    for byte in text:
        state, given, may_end = _steps[state << 8 | byte]
        plain += given
    if not may_end:
        raise NotHuffman
    return bytes(plain)
