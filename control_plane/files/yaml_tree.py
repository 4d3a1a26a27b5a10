"""YAML text as a small tree in which every key and value knows its line and column.

Built from the parser's events rather than with a YAML loader, for three reasons: positions of keys
and values, all mistakes of a file at once (a loader stops at the first duplicate key), and limits
(a loader follows nesting with recursion, and the scanner takes minutes on 60,000 open brackets).
Anchors, aliases and tags are refused: our files are short, flat and repeat nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from control_plane.files.mistakes import START, Mistake, Position, mistake, shown

FILE_BYTES_MAX = 64 * 1024
DEPTH_MAX = 8
EVENTS_MAX = 4_000
DIGITS_MAX = 40

_YAML_TAGS = "tag:yaml.org,2002:"
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
# Those of YAML 1.1 too: half of all readers take `no` for false, so it is never taken for text.
_BOOLEANS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n"})
_DECIMAL = re.compile(r"[-+]?(0|[1-9][0-9]*)")
# All numbers of YAML 1.1 and 1.2: also octal, hexadecimal, binary and base 60, with underscores,
# fractions and exponents.
_NUMBER = re.compile(
    r"[-+]?(0[xob][0-9a-f_]+|[0-9][0-9_]*(\.[0-9_]*)?(e[-+]?[0-9]+)?"
    r"|\.[0-9][0-9_]*(e[-+]?[0-9]+)?|[0-9]+(:[0-5]?[0-9])+|\.inf|\.nan)",
    re.IGNORECASE,
)

# The parser's words (how they start) and what usually helps.
_SYNTAX_HINTS = (
    ("found character '\\t'", "indent with spaces, not with tabs"),
    ("mapping values are not allowed", "put text that contains ': ' in quotes; check the indents"),
    ("could not find expected ':'", "write 'name: value', with a space after the colon"),
    ("expected ',' or", "a bracket that is opened on this line or above is not closed"),
    (
        "found unexpected end of stream",
        "a quote that is opened on this line or above is not closed",
    ),
    ("found unexpected document separator", "a quote that is opened above is not closed"),
    ("found undefined alias", "write the value itself instead of an alias"),
    ("found unknown escape character", "put text with backslashes in single quotes, not in double"),
    ("expected <block end>, but found '<scalar>'", "put text that starts with [ or { in quotes"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scalar:
    at: Position
    text: str
    plain: bool  # without quotes

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS

    @property
    def is_number(self) -> bool:
        return self.plain and bool(_NUMBER.fullmatch(self.text))

    @property
    def is_boolean(self) -> bool:
        return self.plain and self.text.lower() in _BOOLEANS

    def value(self) -> object:
        """What the text stands for; the scalar itself, which fits no field, if it is nothing.

        Nothing are null and numbers that are not whole decimals: YAML 1.1 and 1.2 read 010 or
        1_000 differently, so they are not guessed at.
        """
        if self.is_boolean:
            return self.text.lower() in ("true", "yes", "on", "y")
        if self.plain and _DECIMAL.fullmatch(self.text):
            # Longer ones are out of every range; int() itself refuses thousands of digits.
            return int(self.text[:DIGITS_MAX])
        return self if self.is_null or self.is_number else self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Items:
    at: Position
    items: list["Node"] = field(default_factory=list)

    def value(self) -> list[object]:
        return [each.value() for each in self.items]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    at: Position
    keys: dict[str, Position] = field(default_factory=dict)
    values: dict[str, "Node"] = field(default_factory=dict)

    def value(self) -> dict[str, object]:
        return {name: each.value() for name, each in self.values.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """A value that already has its mistake."""

    at: Position

    def value(self) -> object:
        return self


Node = Scalar | Items | Fields | Unreadable


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """What helps with a file that is wrong as a whole: that depends on what it is a file of."""

    empty: str
    too_large: str
    too_many_values: str
    too_deep: str
    second_document: str


def read(path: str, content: bytes, hints: Hints) -> tuple[Fields | None, list[Mistake]]:
    """`parse`, for the content of a file."""
    if len(content) > FILE_BYTES_MAX:
        message = f"the file is larger than {FILE_BYTES_MAX // 1024} KiB"
        return None, [mistake(path, START, message, hints.too_large)]
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        column = error.start - before.rfind(b"\n")
        at = Position(before.count(b"\n") + 1, column)
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8"
        return None, [mistake(path, at, message, "save the file as UTF-8")]
    return parse(path, text, hints)


def parse(path: str, text: str, hints: Hints) -> tuple[Fields | None, list[Mistake]]:
    """The file's fields, as far as they can be told, and what is wrong with its YAML."""
    reader = _Reader(path, hints)
    try:
        root = reader.document(YAML(typ="safe", pure=True).parse(text))
    except _Stopped:
        return None, reader.mistakes
    except Exception as error:
        # Apart from its own errors the parser lets others through, like the ValueError of chr()
        # for the escape \UFFFFFFFF. Whatever it is, the text is no YAML that we can read.
        reader.mistakes.append(_syntax_mistake(path, text, error, reader.last))
        return None, reader.mistakes
    if root is None or (isinstance(root, Scalar) and root.is_null):
        reader.refuse(START, "the file is empty", hints.empty)
        return None, reader.mistakes
    if not isinstance(root, Fields):
        hint = "write each field on its own line, as 'name: value'"
        if not isinstance(root, Unreadable):
            reader.refuse(root.at, "the file is not a mapping of fields to values", hint)
        return None, reader.mistakes
    return root, reader.mistakes


class _Stopped(Exception):
    """A limit is reached; its mistake is noted."""


class _Reader:
    def __init__(self, path: str, hints: Hints) -> None:
        self.mistakes: list[Mistake] = []
        self.last = START
        self._path = path
        self._hints = hints
        self._depth = 0
        self._events = 0

    def refuse(self, at: Position, message: str, hint: str, *, name: str = "") -> None:
        self.mistakes.append(mistake(self._path, at, message, hint, field=name))

    def document(self, events: Iterator[Event]) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in events:
            self._count(event)
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a second YAML document starts here"
                    self.refuse(self.last, message, self._hints.second_document)
                    return root
            elif isinstance(
                event, AliasEvent | ScalarEvent | SequenceStartEvent | MappingStartEvent
            ):
                root = self._node(event, events, "")
        return root

    def _count(self, event: Event) -> None:
        self.last = _position(event)
        self._events += 1
        if self._events > EVENTS_MAX:
            message = "the file has far too many values"
            self.refuse(self.last, message, self._hints.too_many_values)
            raise _Stopped

    def _node(self, event: Event, events: Iterator[Event], name: str) -> Node:
        at = _position(event)
        if isinstance(event, AliasEvent):
            hint = "write the value itself"
            self.refuse(at, f"the alias *{shown(event.anchor)} is not allowed", hint, name=name)
            return Unreadable(at=at)
        assert isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent)
        if event.anchor is not None:
            hint = f"remove &{shown(event.anchor)}"
            self.refuse(at, f"the anchor &{shown(event.anchor)} is not allowed", hint, name=name)
        node: Node
        if isinstance(event, ScalarEvent):
            node = Scalar(at=at, text=event.value, plain=event.style is None)
        else:
            self._depth += 1
            if self._depth > DEPTH_MAX:
                self.refuse(at, "the file is nested too deeply", self._hints.too_deep)
                raise _Stopped
            is_mapping = isinstance(event, MappingStartEvent)
            node = self._fields(at, events, name) if is_mapping else self._items(at, events, name)
            self._depth -= 1
        if event.tag is not None:
            hint = "remove it: what a value means is decided by its field"
            tag = shown(str(event.tag).replace(_YAML_TAGS, "!!"))
            self.refuse(at, f"the tag {tag} is not allowed", hint, name=name)
            return Unreadable(at=at)
        return node

    def _items(self, at: Position, events: Iterator[Event], name: str) -> Items:
        items = Items(at=at)
        for event in events:
            self._count(event)
            if isinstance(event, SequenceEndEvent):
                break
            items.items.append(self._node(event, events, name))
        return items

    def _fields(self, at: Position, events: Iterator[Event], prefix: str) -> Fields:
        fields = Fields(at=at)
        for event in events:
            self._count(event)
            if isinstance(event, MappingEndEvent):
                break
            key_at = _position(event)
            key = self._node(event, events, prefix)
            text = key.text if isinstance(key, Scalar) else ""
            name = ".".join(filter(None, (prefix, shown(text))))
            value_event = next(events)
            self._count(value_event)
            value = self._node(value_event, events, name)
            if isinstance(value, Scalar) and value.plain and not value.text:
                value = replace(value, at=key_at)  # nothing is there; the parser looks further on
            if not isinstance(key, Scalar):
                if not isinstance(key, Unreadable):
                    hint = "write each field as 'name: value'"
                    self.refuse(key_at, "a field's name must be text", hint, name=prefix)
            elif text in fields.keys:
                first = fields.keys[text].line
                hint = f"it is on line {first} already: remove one of the two"
                self.refuse(key_at, "the field is there twice", hint, name=name)
            else:
                fields.keys[text] = key_at
                fields.values[text] = value
        return fields


def _position(event: Event) -> Position:
    return Position(event.start_mark.line + 1, event.start_mark.column + 1)


def _syntax_mistake(path: str, text: str, error: Exception, last: Position) -> Mistake:
    if isinstance(error, ReaderError):
        before = text[: error.position]
        at = Position(before.count("\n") + 1, len(before) - before.rfind("\n"))
        message = f"the character U+{ord(text[error.position]):04X} is not allowed in YAML"
        return mistake(path, at, message, "remove it, or save the file as plain text")
    problem = "the value after this cannot be read"
    hint = "check its escapes: a backslash in double quotes starts one"
    if isinstance(error, MarkedYAMLError):
        problem = error.problem or error.context or problem
        mark = error.problem_mark or error.context_mark
        if mark is not None:
            last = Position(mark.line + 1, mark.column + 1)
        hints = (hint for start, hint in _SYNTAX_HINTS if problem.startswith(start))
        hint = next(hints, "check the indents, colons and quotes here and on the line above")
    return mistake(path, last, f"not valid YAML: {' '.join(problem.split())}", hint)
