"""The decoder of header blocks, beside the library's encoder and decoder."""

import hpack
from hypothesis import given, settings
from hypothesis import strategies as st

from counter.rpc.http2 import huffman
from counter.rpc.http2.frames import ConnectionBroken, ErrorCode
from counter.rpc.http2.header_block import HeaderDecoder, block_of

FIELDS_BYTES_MAX = 20_000
REQUEST = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/test.Test/Echo")]

# Few of them, so that they come again and are found in the table.
names = st.sampled_from([b"a", b"content-type", b"grpc-timeout", b":authority", b"x" * 40])
values = st.sampled_from([b"", b"trailers", b"10S", b"y" * 700]) | st.binary(max_size=30).map(
    lambda value: value.translate(None, b"\0\r\n")
)
fields = st.tuples(names, values)


@st.composite
def sent_blocks(draw: st.DrawFn) -> list[tuple[list[tuple[bytes, bytes]], bytes]]:
    """Blocks of one connection, as the library's encoder has them, with what is in each."""
    encoder = hpack.Encoder()
    sent: list[tuple[list[tuple[bytes, bytes]], bytes]] = []
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.integers(0, 3)) == 0:
            encoder.header_table_size = draw(st.integers(0, 4_096))
        if sent and draw(st.integers(0, 2)) == 0:
            block = list(draw(st.sampled_from(sent))[0])  # once more
        else:
            block = draw(st.lists(fields, max_size=8))
        kept = [(*each, draw(st.booleans())) for each in block]
        sent.append((block, encoder.encode(kept, huffman=draw(st.booleans()))))
    return sent


@settings(deadline=None)
@given(sent_blocks())
def test_what_was_encoded_is_decoded(sent: list[tuple[list[tuple[bytes, bytes]], bytes]]) -> None:
    decoder, library = HeaderDecoder(10**6), hpack.Decoder(max_header_list_size=10**6)
    for block, encoded in sent:
        assert decoder.decode(encoded) == block
        assert library.decode(encoded, raw=True) == block


@settings(deadline=None)
@given(sent_blocks())
def test_requests_that_are_remembered_are_those_that_were_sent(
    sent: list[tuple[list[tuple[bytes, bytes]], bytes]],
) -> None:
    """References alone, so that they are remembered, between blocks that change the table."""
    encoder, decoder = hpack.Encoder(), HeaderDecoder(10**6)
    for block, _ in sent:
        request = [*REQUEST, *((name.strip(b":"), value) for name, value in block)]
        for _ in range(2):
            assert decoder.request(encoder.encode(request)) == (request, dict(request))


@settings(deadline=None)
@given(st.lists(fields, max_size=8))
def test_our_own_blocks_can_be_read_by_anybody(block: list[tuple[bytes, bytes]]) -> None:
    library = hpack.Decoder(max_header_list_size=10**6)
    assert library.decode(block_of(block), raw=True) == block


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_huffmans_code(text: bytes) -> None:
    """Whatever the library takes is the same text here, and what it does not is not taken."""
    expected: bytes | None
    try:
        expected = hpack.huffman_table.decode_huffman(text)
    except hpack.HPACKDecodingError:
        expected = None
    try:
        assert huffman.decoded(text) == expected
    except huffman.NotHuffman:
        assert expected is None


pieces = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"\x82", b"\xbe", b"\xbf", b"\xc0", b"\x20", b"\x3f\xe1\x1f", b"\xff\x00"]),
    st.tuples(st.sampled_from([0x00, 0x10, 0x40]), st.binary(min_size=1, max_size=9), values).map(
        lambda it: bytes((it[0], len(it[1]))) + it[1] + bytes((min(len(it[2]), 126),)) + it[2]
    ),
)


@settings(deadline=None)
@given(st.lists(st.lists(pieces, max_size=6).map(b"".join), min_size=1, max_size=6))
def test_anything_is_fields_or_too_large_or_breaks_the_connection(blocks: list[bytes]) -> None:
    """And what it is does not differ from what the library says."""
    decoder = HeaderDecoder(FIELDS_BYTES_MAX)
    library = hpack.Decoder(max_header_list_size=10**6)
    for block in blocks:
        expected: list[tuple[bytes, bytes]] | None
        try:
            expected = [(bytes(name), bytes(value)) for name, value in library.decode(block, True)]
        except hpack.HPACKError:
            expected = None
        found, code = _decoded(decoder, block)
        if code is None:
            assert found == expected
            continue
        # A connection has no block after that.
        has_lines = any(set(value) & set(b"\0\r\n") for _, value in expected or ())
        assert code in (ErrorCode.COMPRESSION_ERROR, ErrorCode.PROTOCOL_ERROR)
        assert expected is None or (code == ErrorCode.PROTOCOL_ERROR and has_lines)
        return


def _decoded(
    decoder: HeaderDecoder, block: bytes
) -> tuple[list[tuple[bytes, bytes]] | None, ErrorCode | None]:
    try:
        return decoder.decode(block), None
    except ConnectionBroken as broken:
        return None, broken.code
