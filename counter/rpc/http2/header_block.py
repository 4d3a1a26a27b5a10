"""Header blocks (HPACK, RFC 7541): those of requests are decoded, those of answers are made.

Nearly all fields of a request are references to a table, and the table is the same for call after
call. So the loop below does nothing for those but look them up, and what a block must be is checked
once for each sequence of names. Huffman's code and the static table come from the library `hpack`;
its own decoder takes three times as long as everything else that is done here for a call.

Answers refer to nothing that was sent before: no state to keep, and the blocks of answers that went
well are always the same bytes.
"""

import base64
from collections.abc import Iterable, Sequence

from hpack.exceptions import HPACKDecodingError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

from counter.rpc.http2.frames import ConnectionBroken, ErrorCode, StreamBroken

Field = tuple[bytes, bytes]

TABLE_BYTES_MAX = 4_096
_FIELD_OVERHEAD_BYTES = 32  # RFC 7541, section 4.1
_STATIC: tuple[Field, ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_STATIC_END = len(_STATIC)
_PSEUDO = {b":method", b":scheme", b":path", b":authority"}
_REQUIRED = {b":method", b":scheme", b":path"}
_OF_CONNECTIONS = {
    *(b"connection", b"proxy-connection", b"keep-alive"),
    *(b"transfer-encoding", b"upgrade"),
}
# Sequences of names that were checked. Callers have a few; those who make up ever new ones pay.
_CHECKED_MAX = 1_000
# A number of more bytes than this is longer than any block.
_NUMBER_SHIFT_MAX = 28


class HeaderDecoder:
    """Of one connection: blocks must be decoded in the order in which they came, every one."""

    def __init__(self, fields_bytes_max: int) -> None:
        """`fields_bytes_max`: what all fields of a block may take, by HTTP/2's way of counting."""
        self._fields_bytes_max = fields_bytes_max
        self._table: list[Field] = []  # the newest first
        self._table_bytes = 0
        self._table_bytes_max = TABLE_BYTES_MAX
        self._texts: dict[bytes, bytes] = {}  # by what they were compressed to
        self._checked: set[tuple[bytes, ...]] = set()

    def decode(self, block: bytes) -> list[Field] | None:
        """The fields in order; None if they are too large: then only the table took notice."""
        fields: list[Field] = []
        position, end, size = 0, len(block), 0
        table = self._table
        try:
            while position < end:
                first = block[position]
                if first & 0x80:  # a field that is in the table
                    index = first & 0x7F
                    if index == 0x7F:
                        index, position = _number(block, position, 7)
                    else:
                        position += 1
                    if index < _STATIC_END:
                        if not index:
                            raise _broken("there is no field 0")
                        field = _STATIC[index]
                    else:
                        field = table[index - _STATIC_END]
                elif first & 0x60 == 0x20:
                    if fields:
                        raise _broken("the table's size changes within a block")
                    position = self._resize(block, position)
                    continue
                else:
                    field, position = self._literal(block, position)
                size += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD_BYTES
                if size <= self._fields_bytes_max:
                    fields.append(field)
        except IndexError:
            raise _broken("a block that ends too early, or an unknown field") from None
        return fields if size <= self._fields_bytes_max else None

    def check_request(self, fields: Sequence[Field]) -> None:
        """Raises unless these are the headers of a request (RFC 9113, section 8.3)."""
        names = tuple([field[0] for field in fields])
        if names in self._checked:
            return
        _check_names(names)
        pseudo = [name for name in names if name[0] == 0x3A]
        if pseudo != list(names[: len(pseudo)]) or len(set(pseudo)) != len(pseudo):
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        if not _REQUIRED <= set(pseudo) <= _PSEUDO:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        if b"te" in names and dict(fields)[b"te"] != b"trailers":
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        if len(self._checked) < _CHECKED_MAX:
            self._checked.add(names)

    def _literal(self, block: bytes, position: int) -> tuple[Field, int]:
        is_kept = block[position] & 0x40
        index, position = _number(block, position, 6 if is_kept else 4)
        if not index:
            name, position = self._text(block, position)
        elif index < _STATIC_END:
            name = _STATIC[index][0]
        else:
            name = self._table[index - _STATIC_END][0]
        value, position = self._text(block, position)
        field = (name, value)
        if is_kept:
            self._table.insert(0, field)
            self._table_bytes += len(name) + len(value) + _FIELD_OVERHEAD_BYTES
            self._shrink()
        return field, position

    def _text(self, block: bytes, position: int) -> tuple[bytes, int]:
        is_compressed = block[position] & 0x80
        size, position = _number(block, position, 7)
        end = position + size
        if end > len(block):
            raise _broken("a text that is longer than its block")
        text = block[position:end]
        if not is_compressed:
            return text, end
        known = self._texts.get(text)
        if known is None:
            try:
                known = decode_huffman(text)
            except HPACKDecodingError:
                raise _broken("a text that was not compressed rightly") from None
            if len(self._texts) < _CHECKED_MAX:
                self._texts[text] = known
        return known, end

    def _resize(self, block: bytes, position: int) -> int:
        size, position = _number(block, position, 5)
        if size > TABLE_BYTES_MAX:
            raise _broken("a table that is larger than allowed")
        self._table_bytes_max = size
        self._shrink()
        return position

    def _shrink(self) -> None:
        while self._table_bytes > self._table_bytes_max:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + _FIELD_OVERHEAD_BYTES


def check_trailers(fields: Iterable[Field]) -> None:
    names = tuple([field[0] for field in fields])
    _check_names(names)
    if any(name[0] == 0x3A for name in names):
        raise StreamBroken(ErrorCode.PROTOCOL_ERROR)


def _check_names(names: tuple[bytes, ...]) -> None:
    for name in names:
        if not name or name != name.lower() or name in _OF_CONNECTIONS:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)


def _number(block: bytes, position: int, bits: int) -> tuple[int, int]:
    """A number that begins in the lower `bits` of a byte, and where it ends."""
    limit = (1 << bits) - 1
    number = block[position] & limit
    position += 1
    if number < limit:
        return number, position
    shift = 0
    while True:
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > _NUMBER_SHIFT_MAX:
            raise _broken("a number that is too large")


def _broken(why: str) -> ConnectionBroken:
    return ConnectionBroken(ErrorCode.COMPRESSION_ERROR, why)


# What is sent.


def block_of(fields: Iterable[Field]) -> bytes:
    """A block of literals that nobody is to remember."""
    return b"".join(
        b"\x00" + _length(len(name)) + name + _length(len(value)) + value for name, value in fields
    )


def _length(size: int) -> bytes:
    if size < 0x7F:
        return bytes((size,))
    encoded, size = bytearray((0x7F,)), size - 0x7F
    while size >= 0x80:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


def metadata_fields(metadata: Iterable[tuple[str, str | bytes]]) -> list[Field]:
    """As gRPC has metadata on the wire: what ends with -bin is any bytes, in base64."""
    return [
        (key.encode(), base64.b64encode(_bytes(value)).rstrip(b"="))
        if key.endswith("-bin")
        else (key.encode(), _bytes(value))
        for key, value in metadata
    ]


def metadata_of(fields: Iterable[Field]) -> tuple[tuple[str, str | bytes], ...]:
    """What a caller sent beside what HTTP/2 and gRPC need themselves."""
    return tuple(
        (
            name.decode("latin-1"),
            base64.b64decode(value + b"==") if name.endswith(b"-bin") else value.decode("latin-1"),
        )
        for name, value in fields
        if name[0] != 0x3A
    )


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
