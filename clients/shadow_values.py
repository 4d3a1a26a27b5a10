"""What the SDK's calls on a shadow phase give."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowCount:
    counter: str
    count: int  # what a read answers now
    shadow_count: int  # what it will answer after the cutover

    @property
    def difference(self) -> int:
        """What the shadow lacks; negative: what it has more."""
        return self.count - self.shadow_count


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowPage:
    counters: tuple[ShadowCount, ...]  # by name
    next_page_token: str  # empty: this was the last page
    complete_through_ns: int | None  # every event of the shadow up to here is folded
