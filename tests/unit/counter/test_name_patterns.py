import pytest

from counter.name_patterns import compile_names


def test_the_whole_name_must_match() -> None:
    matches = compile_names("[a-z]+:[0-9]+")
    assert matches("title:42")
    for name in ("title:", "xx title:42", "title:42 ", "title:42\n", "TITLE:42", ""):
        assert not matches(name), name


def test_anchors_and_alternatives_change_nothing_about_that() -> None:
    assert compile_names("^title$")("title")
    assert not compile_names("a|ab")("abc")
    assert compile_names("a|ab")("ab")
    assert not compile_names("(?m)^a$")("b\na")


def test_names_are_text_and_not_bytes() -> None:
    assert compile_names("..")("éß")
    assert compile_names(r"\pL+")("größe")
    assert not compile_names(r"\w+")("größe")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[a-z", "missing ]: [a-z"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("(?=a)b", "invalid perl operator: (?="),
        (r"\pL{1000}", "pattern too large - compile failed"),
        ("a\ud800", "half a character, a lone surrogate"),
    ],
)
def test_what_is_no_pattern_is_refused_with_the_reason(pattern: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        compile_names(pattern)
    assert str(refused.value) == message


def test_patterns_that_backtracking_never_ends_are_answered() -> None:
    assert not compile_names("(a*)*b")("a" * 256)
    assert not compile_names("(x+x+)+y")("x" * 256)
