"""Ranges of names: exactly those that begin with a prefix and come after a name."""

from hypothesis import given
from hypothesis import strategies as st

from counter.storage.name_range import name_range

# Few letters, so that names meet; among them those at the edges of UTF-8.
letters = st.sampled_from("\x00a\x7f\x80é\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff")
names = st.text(letters, max_size=4)


@given(prefix=names, after=names, name=names)
def test_a_range_holds_just_what_begins_with_the_prefix_after_a_name(
    prefix: str, after: str, name: str
) -> None:
    first, end = name_range(prefix, after)
    wanted = name.startswith(prefix) and name.encode() > after.encode()
    assert (first <= name < end) == wanted
    # Stores compare bytes, and all of it has UTF-8.
    assert (first.encode() <= name.encode() < end.encode()) == wanted


@given(prefix=st.text(max_size=3), rest=st.text(max_size=3))
def test_any_name_is_in_the_range_of_its_beginning(prefix: str, rest: str) -> None:
    name = prefix + rest
    first, end = name_range(prefix, "")
    assert name == "" or first <= name < end
