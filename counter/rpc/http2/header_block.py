"""Header blocks (HPACK, RFC 7541): those of requests are decoded, those of answers are made.

Nearly all fields of a request are references to a table, and the table is the same for call after
call. So blocks are remembered as long as the table does not change, the loop below does nothing for
references but look them up, and what a block must be is checked once for each sequence of names.
The static table comes from the library `hpack`; its own decoder takes three times as long as
everything else that is done here for a call.

Answers refer to nothing that was sent before: no state to keep, and the blocks of answers that went
well are always the same bytes.
"""

import re
from collections.abc import Iterable, Sequence

from hpack.table import HeaderTable

from counter.rpc.http2 import huffman
from counter.rpc.http2.frames import ConnectionBroken, ErrorCode, StreamBroken

Field = tuple[bytes, bytes]
# The fields of a request in order, and the last of each name. Nobody may change them.
Request = tuple[list[Field], dict[bytes, bytes]]

TABLE_BYTES_MAX = 4_096
# Before a block of ours: we remember nothing, whatever the peer would have us remember.
NO_TABLE = b"\x20"
_FIELD_OVERHEAD_BYTES = 32  # RFC 7541, section 4.1
_STATIC: tuple[Field, ...] = ((b"", b""), *HeaderTable.STATIC_TABLE)
_STATIC_END = len(_STATIC)
# What names are made of (RFC 9113, section 8.2.1), and what no value has.
_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_NOT_IN_VALUES = re.compile(rb"[\0\r\n]")
_PSEUDO = {b":method", b":scheme", b":path", b":authority"}
_REQUIRED = {b":method", b":scheme", b":path"}
_OF_CONNECTIONS = {
    *(b"connection", b"proxy-connection", b"keep-alive"),
    *(b"transfer-encoding", b"upgrade"),
}
# What is remembered: blocks, and sequences of names that were checked. Callers have a few; those
# who make up ever new ones, or long ones, pay.
_REMEMBERED_MAX = 100
_BLOCK_BYTES_MAX = 100
_NAMES_BYTES_MAX = 1_000
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
        self._is_settled = True  # the last block did not change the table
        self._checked: set[tuple[bytes, ...]] = set()
        self._requests: dict[bytes, Request] = {}  # by their blocks, as the table is

    def request(self, block: bytes) -> Request | None:
        """As `decode`. Raises unless these can be the headers of a request (RFC 9113, section
        8.3)."""
        request = self._requests.get(block)
        if request is None:
            fields = self.decode(block)
            if fields is None:
                return None
            self._check_request(fields)
            request = (fields, dict(fields))
            if self._is_settled and len(block) <= _BLOCK_BYTES_MAX:
                if len(self._requests) >= _REMEMBERED_MAX:
                    self._requests.clear()
                self._requests[block] = request
        return request

    def decode(self, block: bytes) -> list[Field] | None:
        """The fields in order; None if they are too large: then only the table took notice."""
        self._is_settled = True
        fields: list[Field] = []
        position, end, size = 0, len(block), 0
        table = self._table
        try:
            while position < end:
                first = block[position]
                if first & 0x80:  # a field that is in the table
                    index = first & 0x7F
                    if index == 0x7F:
                        index, position = _number(block, position, 0x7F)
                    else:
                        position += 1
                    if index < _STATIC_END:
                        if not index:
                            raise _broken("there is no field 0")
                        field = _STATIC[index]
                    else:
                        field = table[index - _STATIC_END]
                elif first & 0x60 == 0x20:
                    if size:
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

    def _check_request(self, fields: Sequence[Field]) -> None:
        names = tuple([field[0] for field in fields])
        if names in self._checked:
            return
        _check_names(names)
        pseudo = [name for name in names if name[0] == 0x3A]
        if pseudo != list(names[: len(pseudo)]) or len(set(pseudo)) != len(pseudo):
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        if not _REQUIRED <= set(pseudo) <= _PSEUDO:
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)
        if sum(map(len, names)) <= _NAMES_BYTES_MAX:
            if len(self._checked) >= _REMEMBERED_MAX:
                self._checked.clear()
            self._checked.add(names)

    def _literal(self, block: bytes, position: int) -> tuple[Field, int]:
        is_kept = block[position] & 0x40
        index, position = _number(block, position, 0x3F if is_kept else 0x0F)
        if not index:
            name, position = _text(block, position)
        elif index < _STATIC_END:
            name = _STATIC[index][0]
        else:
            name = self._table[index - _STATIC_END][0]
        value, position = _text(block, position)
        if not value.isalnum() and _NOT_IN_VALUES.search(value):
            # It would do to break the stream, but then the field is in the table.
            raise ConnectionBroken(ErrorCode.PROTOCOL_ERROR, "a field with several lines")
        field = (name, value)
        if is_kept:
            self._table.insert(0, field)
            self._table_bytes += len(name) + len(value) + _FIELD_OVERHEAD_BYTES
            self._changed()
        return field, position

    def _resize(self, block: bytes, position: int) -> int:
        size, position = _number(block, position, 0x1F)
        if size > TABLE_BYTES_MAX:
            raise _broken("a table that is larger than allowed")
        self._table_bytes_max = size
        self._changed()
        return position

    def _changed(self) -> None:
        self._is_settled = False
        self._requests.clear()
        while self._table_bytes > self._table_bytes_max:
            name, value = self._table.pop()
            self._table_bytes -= len(name) + len(value) + _FIELD_OVERHEAD_BYTES


def check_trailers(fields: Iterable[Field]) -> None:
    names = [field[0] for field in fields]
    _check_names(names)
    if any(name[0] == 0x3A for name in names):
        raise StreamBroken(ErrorCode.PROTOCOL_ERROR)


def _check_names(names: Iterable[bytes]) -> None:
    for name in names:
        if name in _OF_CONNECTIONS or not _NAME.fullmatch(name):
            raise StreamBroken(ErrorCode.PROTOCOL_ERROR)


def _text(block: bytes, position: int) -> tuple[bytes, int]:
    is_compressed = block[position] & 0x80
    size, position = _number(block, position, 0x7F)
    end = position + size
    if end > len(block):
        raise _broken("a text that is longer than its block")
    text = block[position:end]
    if is_compressed:
        try:
            text = huffman.decoded(text)
        except huffman.NotHuffman:
            raise _broken("a text that was not compressed rightly") from None
    return text, end


def _number(block: bytes, position: int, limit: int) -> tuple[int, int]:
    """A number that begins in the lowest bits of a byte, which are those of `limit`, and where it
    ends."""
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
