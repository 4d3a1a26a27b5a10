"""Who decided something by hand, and why: it stays with what was decided."""

from counter.errors import InvalidRequest

AUTHOR_CHARACTERS_MAX = 100
REASON_CHARACTERS_MAX = 500


def check_note(*, author: str, reason: str) -> None:
    for field, text, characters_max in (
        ("author", author, AUTHOR_CHARACTERS_MAX),
        ("reason", reason, REASON_CHARACTERS_MAX),
    ):
        if not text.strip() or len(text) > characters_max:
            raise InvalidRequest(
                "NOTE_MALFORMED",
                field,
                f"{field} must have 1 to {characters_max} characters: who decides, and why, stays "
                "with the decision",
            )
