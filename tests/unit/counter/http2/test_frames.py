import pytest

from counter.rpc.http2 import frames
from counter.rpc.http2.frames import ConnectionBroken, ErrorCode


def test_frames_as_the_rfc_has_them() -> None:
    assert frames.frame(frames.PING, frames.ACK, 0, b"12345678") == (
        b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"
    )
    assert frames.frame(frames.DATA, 0, 2**31 - 1, bytes(70_000))[:9] == (
        b"\x01\x11\x70\x00\x00\x7f\xff\xff\xff"
    )
    assert frames.window_update(3, 2**31 - 1)[9:] == b"\x7f\xff\xff\xff"
    assert frames.rst_stream(3, ErrorCode.CANCEL) == b"\0\0\x04\x03\0\0\0\0\x03\0\0\0\x08"
    assert frames.goaway(5, ErrorCode.ENHANCE_YOUR_CALM, "calm")[9:] == b"\0\0\0\5\0\0\0\x0bcalm"


def test_settings_there_and_back() -> None:
    frame = frames.settings({frames.INITIAL_WINDOW_SIZE: 7, frames.MAX_FRAME_SIZE: 2**24 - 1})
    assert frame[:9] == b"\x00\x00\x0c\x04\x00\x00\x00\x00\x00"
    assert frames.settings_of(frame[9:]) == {4: 7, 5: 2**24 - 1}
    assert frames.settings_of(frame[9:] + b"\x00\x04\x00\x00\x00\x08") == {4: 8, 5: 2**24 - 1}


def test_the_highest_bit_of_a_number_is_reserved() -> None:
    assert frames.number_of(b"\xff\xff\xff\xff") == 2**31 - 1
    assert frames.number_of(b"\x80\x00\x00\x01more") == 1


@pytest.mark.parametrize(
    ("payload", "data"),
    [(b"\0", b""), (b"\0ab", b"ab"), (b"\2ab..", b"ab"), (b"\2..", b"")],
)
def test_padding_is_taken_off(payload: bytes, data: bytes) -> None:
    assert frames.unpadded(payload, frames.PADDED) == data
    assert frames.unpadded(payload, 0) == payload


@pytest.mark.parametrize("payload", [b"", b"\1", b"\5abcd", b"\xff"])
def test_more_padding_than_there_is(payload: bytes) -> None:
    with pytest.raises(ConnectionBroken) as raised:
        frames.unpadded(payload, frames.PADDED)
    assert raised.value.code == ErrorCode.PROTOCOL_ERROR
