"""In which fields two definitions of a namespace differ, with the words to speak about it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from control_plane.files.durations import format_ms
from control_plane.planning.written import FIELDS, HISTORY, written_step
from counter.namespaces import Definition, HistoryStep


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One field that differs, or one step of the history."""

    subject: str  # what the rules are for: the field, or `history.step`, `history.retention`
    field: str  # as in the file
    before: Definition
    after: Definition
    was: object  # the value; None: there is none
    will: object
    written_before: str  # as it would be in YAML; empty: left out
    written_after: str

    @property
    def is_lower(self) -> bool:
        return self._rise < 0

    @property
    def is_higher(self) -> bool:
        return self._rise > 0

    @property
    def left_steps(self) -> list[HistoryStep]:
        """Of the history that is left: what answers instead of a step that goes, most last."""
        gone = self.was
        assert isinstance(gone, HistoryStep)
        return [each for each in self.after.history if gone.step_ms % each.step_ms == 0]

    @property
    def words(self) -> Mapping[str, str]:
        """For explanations and hints."""
        return {
            "name": self.before.name,
            "was": self.written_before,
            "will": self.written_after,
            "shadow": self.before.shadow or "",
            "strategy": self.after.strategy,
            "length_before": _duration(self.before.rolling_window_ms),
            "length_after": _duration(self.after.rolling_window_ms),
            "longer_by": _duration(abs(self._rise)),
            **self._history_words(),
        }

    @property
    def _rise(self) -> int:
        """0 where one of them is no number: nothing is lower or higher than none."""
        was, will = _number(self.was), _number(self.will)
        return 0 if was is None or will is None else will - was

    def _history_words(self) -> dict[str, str]:
        words = {}
        if isinstance(self.was, HistoryStep):
            words = {"step": _duration(self.was.step_ms), "kept": _duration(self.was.retention_ms)}
            if left := self.left_steps:
                words["left_step"] = _duration(left[-1].step_ms)
                words["left_kept"] = _duration(left[-1].retention_ms)
        if isinstance(self.will, HistoryStep):
            words["step"] = _duration(self.will.step_ms)
            words["kept_after"] = _duration(self.will.retention_ms)
        return words


def changes_between(before: Definition, after: Definition) -> Iterator[Change]:
    """In the order in which the fields are written."""
    for field in FIELDS:
        was, will = field.value(before), field.value(after)
        if was != will:
            yield Change(
                subject=field.name,
                field=field.name,
                before=before,
                after=after,
                was=was,
                will=will,
                written_before=field.written(before),
                written_after=field.written(after),
            )
    # A step is known by its length: one of another length is another step.
    steps_before = {each.step_ms: each for each in before.history}
    steps_after = {each.step_ms: each for each in after.history}
    for step_ms in sorted(steps_before.keys() | steps_after.keys()):
        step_before, step_after = steps_before.get(step_ms), steps_after.get(step_ms)
        if step_before != step_after:
            stays = step_before is not None and step_after is not None
            yield Change(
                subject=f"{HISTORY}.retention" if stays else f"{HISTORY}.step",
                field=HISTORY,
                before=before,
                after=after,
                was=step_before,
                will=step_after,
                written_before="" if step_before is None else written_step(step_before),
                written_after="" if step_after is None else written_step(step_after),
            )


def _number(value: object) -> int | None:
    if isinstance(value, HistoryStep):
        return value.retention_ms
    return value if isinstance(value, int) else None


def _duration(milliseconds: int | None) -> str:
    return "" if milliseconds is None else format_ms(milliseconds)
