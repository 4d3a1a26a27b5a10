"""Header blocks one by one, many of them from the appendix of RFC 7541."""

import pytest

from counter.rpc.http2.frames import ConnectionBroken, ErrorCode, StreamBroken
from counter.rpc.http2.header_block import (
    TABLE_BYTES_MAX,
    HeaderDecoder,
    block_of,
    check_trailers,
)

REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a")]


def decoder(fields_bytes_max: int = 10_000) -> HeaderDecoder:
    return HeaderDecoder(fields_bytes_max)


def test_the_examples_of_the_rfc() -> None:
    """C.3 and C.4: three requests on one connection, without and with Huffman's code."""
    first = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/")]
    host = [(b":authority", b"www.example.com")]
    second = [*first, *host, (b"cache-control", b"no-cache")]
    third = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/index.html")]
    third += [*host, (b"custom-key", b"custom-value")]
    for blocks in (
        (
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ):
        decoding = decoder()
        fields = [decoding.decode(bytes.fromhex(block)) for block in blocks]
        assert fields == [[*first, *host], second, third]


def test_entries_leave_the_table_when_it_is_full() -> None:
    decoding = decoder()
    large = b"x" * (TABLE_BYTES_MAX // 2)
    for name in (b"a", b"b"):
        decoding.decode(b"\x40\x01" + name + b"\x7f\x81\x0f" + large)
    assert decoding.decode(b"\xbe") == [(b"b", large)]
    with pytest.raises(ConnectionBroken):
        decoding.decode(b"\xbf")  # the first one is not there any more


def test_an_entry_that_is_larger_than_the_table_empties_it() -> None:
    decoding = decoder()
    assert decoding.decode(b"\x40\x01a\x01b\xbe") == [(b"a", b"b")] * 2
    assert decoding.decode(b"\x40\x01a" + b"\x7f\xff\x1f" + bytes(b"x" * 4_222)) is not None
    with pytest.raises(ConnectionBroken):
        decoding.decode(b"\xbe")


def test_the_table_can_be_made_smaller_and_larger() -> None:
    decoding = decoder()
    decoding.decode(b"\x40\x01a\x01b")
    assert decoding.decode(b"\x20\x3f\xe1\x1f\x40\x01c\x01d\xbe") == [(b"c", b"d")] * 2
    with pytest.raises(ConnectionBroken):
        decoding.decode(b"\xbf")


def test_what_was_remembered_is_forgotten_with_the_table() -> None:
    """The same bytes mean something else."""
    decoding = decoder()
    fixed = b"\x83\x86\x84"
    decoding.decode(b"\x40\x01a\x01b")
    first = decoding.request(fixed + b"\xbe")
    assert first is not None
    assert first[0][-1] == (b"a", b"b")
    assert decoding.request(fixed + b"\xbe") is first
    decoding.decode(b"\x40\x01c\x01d")
    second = decoding.request(fixed + b"\xbe")
    assert second is not None
    assert second[0][-1] == (b"c", b"d")
    decoding.decode(b"\x20")
    with pytest.raises(ConnectionBroken):
        decoding.request(fixed + b"\xbe")


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # field 0
        b"\xbe",  # of an empty table
        b"\xff\x80\x80\x80\x80\x80\x01",  # a number without end
        b"\xff\xff\xff\xff\xff\x0f",  # a large one
        b"\xff",
        b"\x40",
        b"\x40\x01",
        b"\x40\x01a",
        b"\x40\x01a\x05b",
        b"\x0f",
        b"\x3f\xe2\x1f",  # a table of 4,097 bytes
        b"\x82\x20",  # its size, after a field
        b"\x40\x81\xff\x01b",  # Huffman's code for nothing
        b"\x40\x84\xff\xff\xff\xff\x01b",
    ],
    ids=bytes.hex,
)
def test_blocks_that_break_the_connection(block: bytes) -> None:
    with pytest.raises(ConnectionBroken) as raised:
        decoder().decode(block)
    assert raised.value.code == ErrorCode.COMPRESSION_ERROR


def test_a_size_that_changes_after_a_field_which_was_too_large() -> None:
    with pytest.raises(ConnectionBroken):
        decoder(10).decode(b"\x82\x20")


def test_fields_that_are_too_large_still_enter_the_table() -> None:
    decoding = decoder(100)
    assert decoding.decode(b"\x40\x01a\x01b" + b"\x40\x01c\x40" + b"x" * 64) is None
    assert decoding.decode(b"\xbf") == [(b"a", b"b")]
    # 32 bytes of each field are for the table: the limit counts them as well.
    assert decoding.decode(b"\xbf" * 2) is not None
    assert decoding.decode(b"\xbf" * 3) is None


@pytest.mark.parametrize(
    "fields",
    [
        REQUEST[1:],
        [*REQUEST, (b":path", b"/b")],
        [*REQUEST, (b":status", b"200")],
        [REQUEST[0], (b"a", b"b"), *REQUEST[1:]],
        [*REQUEST, (b"Upper", b"b")],
        [*REQUEST, (b"keep-alive", b"b")],
        [*REQUEST, (b"", b"b")],
        [*REQUEST, (b"a b", b"b")],
    ],
)
def test_fields_that_are_no_request(fields: list[tuple[bytes, bytes]]) -> None:
    decoding = decoder()
    for _ in range(2):  # that it was seen makes it no better
        with pytest.raises(StreamBroken):
            decoding.request(block_of(fields))
    assert decoding.request(block_of(REQUEST)) == (REQUEST, dict(REQUEST))


def test_ever_new_requests_take_no_more_room() -> None:
    decoding = decoder()
    for number in range(1_000):
        fields = [*REQUEST, (b"n%d" % number, b"v")]
        assert decoding.request(block_of(fields)) == (fields, dict(fields))
    long = [*REQUEST, *((b"name-%d" % number, b"v") for number in range(150))]
    assert decoding.request(block_of(long)) == (long, dict(long))
    assert len(decoding._checked) <= 100
    assert len(decoding._requests) <= 100
    assert max(map(len, decoding._requests)) <= 100
    assert max(sum(map(len, names)) for names in decoding._checked) <= 1_000


def test_trailers() -> None:
    check_trailers([(b"a", b"b")])
    for name in (b":path", b"Upper", b"upgrade"):
        with pytest.raises(StreamBroken):
            check_trailers([(name, b"b")])
