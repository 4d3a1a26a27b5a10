import pytest

from counter.rpc.http2.metadata import fields_of, percent_encoded


def test_metadata_on_the_wire() -> None:
    assert fields_of([("a", "b"), ("a", b"c"), ("d-bin", b"\0\xff"), ("e-bin", "f")]) == [
        (b"a", b"b"),
        (b"a", b"c"),
        (b"d-bin", b"AP8"),
        (b"e-bin", b"Zg"),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [("Upper", "a"), ("", "a"), ("a b", "a"), (":a", "a"), ("ä", "a"), ("a", "ä"), ("a", "b\n")],
)
def test_metadata_that_no_caller_could_take(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        fields_of([(key, value)])


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("plain ~ text", b"plain ~ text"),
        ("100 %", b"100 %25"),
        ("ä\n", b"%C3%A4%0A"),
        ("\ud800", b"?"),  # half of a character
    ],
)
def test_messages_of_errors(text: str, encoded: bytes) -> None:
    assert percent_encoded(text) == encoded
