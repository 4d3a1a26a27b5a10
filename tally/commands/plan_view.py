"""How changes of namespaces are shown: what changes, field by field, and what comes of it."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.text import Text

from clients import Action, Consequence, FieldChange, NamespaceChange, Plan
from tally.commands.mistakes_view import MISTAKE_FIELDS, mistake_documents
from tally.output import console, is_terminal, printable, say, write_line

CHANGE_FIELDS = (
    "changes, a list of: namespace, action (create, change, delete or restore), consequence "
    "(harmless, costs, data_loss or impossible), explanation, path, fields, a list of: field, "
    "before, after, consequence, explanation, hint, line, column"
)
PLAN_FIELDS = (
    f"base_version, consequence (the gravest), {CHANGE_FIELDS}; mistakes, a list of: "
    f"{MISTAKE_FIELDS}"
)
# Longer lines are hard to read, however wide the terminal is.
_WIDTH_MAX = 100
_FIELD_INDENT = 4
_TEXT_INDENT = 8
_LEFT_OUT = "(left out)"
_ARROW = " -> "
_SIGNS = {
    Action.CREATE: ("+", "green"),
    Action.CHANGE: ("~", "yellow"),
    Action.DELETE: ("-", "red"),
    Action.RESTORE: ("↺", "green"),
}
_WORDS = {
    Consequence.HARMLESS: ("harmless", "green"),
    Consequence.COSTS: ("costs", "yellow"),
    Consequence.DATA_LOSS: ("data loss", "red"),
    Consequence.IMPOSSIBLE: ("impossible", "bold red"),
}
# What a newer server says and this version has no word for.
_SIGN_UNKNOWN = ("?", "bold")
_WORD_UNKNOWN = ("not known to this version of tally", "bold")


def print_changes(changes: Sequence[NamespaceChange]) -> None:
    """One block for each namespace, with an empty line after it."""
    for change in changes:
        for line in _lines(change):
            if is_terminal():
                console().print(line)
            else:
                write_line(line.plain.rstrip())
        write_line("")


def say_wrapped(text: str, style: str = "") -> None:
    """A sentence of any length: on a terminal it is cut between words."""
    for line in _cut(text, 0):
        say(line, style=style)


def summary_of(changes: Sequence[NamespaceChange], *, verbs: tuple[str, str, str, str]) -> str:
    """`1 to create, 2 to change, 0 to delete`, in the verbs' words for the four actions."""
    counts = {action: sum(each.action is action for each in changes) for action in Action}
    parts = [
        f"{counts[action]:,} {verb}"
        for action, verb in zip(
            (Action.CREATE, Action.CHANGE, Action.DELETE, Action.RESTORE), verbs, strict=True
        )
        if action is not Action.RESTORE or counts[action]
    ]
    return ", ".join(parts)


def why_not(plan: Plan, *, allow_data_loss: bool) -> str:
    """Why the changes of a plan cannot be applied like this; empty if they can."""
    impossible = _names_with(plan.changes, Consequence.IMPOSSIBLE)
    if impossible:
        return (
            f"no live namespace can be changed like {impossible}: what is marked as impossible "
            "says what to do instead"
        )
    losing = _names_with(plan.changes, Consequence.DATA_LOSS)
    if losing and not allow_data_loss:
        return f"data of {losing} would be lost: if that is meant, add --allow-data-loss"
    return ""


def plan_document(plan: Plan) -> dict[str, Any]:
    return {
        "base_version": plan.base_version,
        "consequence": plan.consequence,
        "changes": change_documents(plan.changes),
        "mistakes": mistake_documents(plan.mistakes),
    }


def change_documents(changes: Sequence[NamespaceChange]) -> list[dict[str, Any]]:
    return [
        {
            "namespace": change.namespace,
            "action": change.action,
            "consequence": change.consequence,
            "explanation": change.explanation,
            "path": change.path or None,
            "fields": [
                {
                    "field": each.field,
                    "before": each.before or None,
                    "after": each.after or None,
                    "consequence": each.consequence,
                    "explanation": each.explanation,
                    "hint": each.hint or None,
                    "line": each.line,
                    "column": each.column,
                }
                for each in change.fields
            ],
        }
        for change in changes
    ]


def _names_with(changes: Sequence[NamespaceChange], consequence: Consequence) -> str:
    return ", ".join(each.namespace for each in changes if each.consequence is consequence)


def _lines(change: NamespaceChange) -> Iterator[Text]:
    sign, style = _sign_of(change.action)
    title = Text()
    title.append(f"{sign} {printable(change.namespace)}", style=f"bold {style}")
    # All of a new namespace is in its file; of others it is told where each change is.
    is_new = change.action is Action.CREATE
    if change.path and (is_new or not any(each.line for each in change.fields)):
        title.append(f"  {printable(change.path)}", style="dim")
    yield title
    if change.explanation:
        yield from _explained(_own_consequence(change), change.explanation, _FIELD_INDENT)
    names_width = max((len(each.field) for each in change.fields), default=0)
    values = [_values(each, is_new=is_new) for each in change.fields]
    values_width = max((each.cell_len for each in values), default=0)
    for field, value in zip(change.fields, values, strict=True):
        line = Text(" " * _FIELD_INDENT)
        line.append(printable(field.field).ljust(names_width + 2), style="cyan")
        yield from _placed(line, value, values_width, "" if is_new else _place(change, field))
        if field.explanation:
            yield from _explained(field.consequence, field.explanation, _TEXT_INDENT)
        if field.hint:
            yield from _hinted(field)


def _values(field: FieldChange, *, is_new: bool) -> Text:
    before, after = printable(field.before), printable(field.after)
    if is_new:
        return Text(after)
    line = Text()
    line.append(before or _LEFT_OUT, style="" if before else "dim")
    line.append(_ARROW, style="bold")
    line.append(after or _LEFT_OUT, style="bold" if after else "dim")
    return line


def _place(change: NamespaceChange, field: FieldChange) -> str:
    return f"{printable(change.path)}:{field.line}" if field.line else ""


def _placed(name: Text, value: Text, values_width: int, place: str) -> Iterator[Text]:
    """The name, the values and their place, on as few lines as the terminal is wide."""
    width = _width() if is_terminal() else None
    if width is not None and name.cell_len + value.cell_len > width and _ARROW in value.plain:
        before, after = value.divide([value.plain.index(_ARROW)])[:2]
        yield name + before
        name, value = Text(" " * (name.cell_len - len(_ARROW))), after
    if not place:
        yield name + value
        return
    gap = max(0, values_width - value.cell_len) + 2
    if width is not None and name.cell_len + value.cell_len + gap + len(place) > width:
        gap = 2
    if width is not None and name.cell_len + value.cell_len + gap + len(place) > width:
        yield name + value
        name, value, gap = Text(" " * _TEXT_INDENT), Text(), 0
    line = name + value
    line.append(" " * gap + place, style="dim")
    yield line


def _explained(consequence: Consequence | None, explanation: str, indent: int) -> Iterator[Text]:
    word, style = _WORD_UNKNOWN if consequence is None else _WORDS[consequence]
    is_harmless = consequence is Consequence.HARMLESS
    lines = _cut(f"{word}: {explanation}", indent)
    for number, text in enumerate(lines):
        line = Text(text, style="dim" if is_harmless else "")
        if number == 0:
            line.stylize(style, indent, indent + len(word) + 1)
        yield line


def _hinted(field: FieldChange) -> Iterator[Text]:
    is_refused = field.consequence is Consequence.IMPOSSIBLE
    for line in _cut(f"{'instead' if is_refused else 'note'}: {field.hint}", _TEXT_INDENT):
        yield Text(line, style="italic")


def _cut(text: str, indent: int) -> list[str]:
    """As lines of a terminal; into a pipe it stays one line."""
    text = " " * indent + printable(text)
    if not is_terminal():
        return [text]
    return textwrap.wrap(
        text,
        width=_width(),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width() -> int:
    return max(_TEXT_INDENT + 20, min(console().width, _WIDTH_MAX))


def _own_consequence(change: NamespaceChange) -> Consequence | None:
    """Of the action. A plan says the gravest of action and fields; a field may account for it."""
    if any(each.consequence is change.consequence for each in change.fields):
        return Consequence.HARMLESS
    return change.consequence


def _sign_of(action: Action | None) -> tuple[str, str]:
    return _SIGN_UNKNOWN if action is None else _SIGNS[action]
