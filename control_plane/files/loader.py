"""Reads namespace files: all definitions, or all mistakes of all files.

Nothing here raises for what is in a file or on the disk: a mistake is a value.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import NamedTuple

from pydantic import ValidationError

from control_plane.files.messages import explain
from control_plane.files.mistakes import START, Mistake, Position, mistake, quoted, shown
from control_plane.files.model import NamespaceFile
from control_plane.files.yaml_tree import (
    FILE_BYTES_MAX,
    Fields,
    Hints,
    Items,
    Node,
    Scalar,
    Unreadable,
    read,
)
from counter.namespaces import Definition

FILES_MAX = 1_000
SUFFIXES = (".yaml", ".yml")
# Hidden files, and what editors put beside the file that is being edited.
IGNORED_PREFIXES = (".", "#", "~")

_HINTS = Hints(
    empty="start with 'namespace: NAME' and 'strategy: eventual'",
    too_large="is this a namespace file? Shorten it",
    too_many_values="a namespace has about a dozen fields",
    too_deep="nothing is deeper than the fields of 'cache', or of a step of 'history'",
    second_document="one file holds one namespace: move this one to its own file",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Where a definition is written."""

    path: str
    positions: Mapping[str, Position]  # of the values, by field

    def find(self, field: str) -> Position | None:
        """Of the field's value, or of its section; None: it is left out."""
        return self.positions.get(field) or self.positions.get(field.partition(".")[0])

    def position(self, field: str) -> Position:
        """Of the field's value, or of its section; of the name where it is left out."""
        return self.find(field) or self.positions["namespace"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What was read. Apply the definitions only if there are no mistakes at all (I10)."""

    definitions: tuple[Definition, ...]  # of the files without mistakes
    mistakes: tuple[Mistake, ...]  # by path and position
    sources: Mapping[str, Source] = field(default_factory=dict)  # by namespace
    origin: str = ""  # the directory; empty if the files came from elsewhere


def is_namespace_file(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(IGNORED_PREFIXES)


def load_directory(path: str | os.PathLike[str]) -> Loaded:
    """Reads every *.yaml and *.yml that lies directly in the directory."""
    origin = os.fspath(path)
    try:
        names = sorted(filter(is_namespace_file, os.listdir(origin)))
    except OSError as error:
        message = f"the directory cannot be read: {error.strerror}"
        hint = "name a directory that exists and that this user may read"
        return _nothing(origin, message, hint)
    if not names:
        hint = "put one NAME.yaml per namespace there"
        return _nothing(origin, f"no namespace files in {shown(origin)}", hint)
    if len(names) > FILES_MAX:
        message = f"{len(names)} namespace files, and the limit is {FILES_MAX}"
        return _nothing(origin, message, "merge namespaces, or run a second installation")
    files: list[tuple[str, bytes]] = []
    unreadable: list[Mistake] = []
    for name in names:
        file = Path(origin, name)
        content = content_of(file)
        if isinstance(content, Mistake):
            unreadable.append(content)
        else:
            files.append((str(file), content))
    return _load(files, unreadable, origin)


def load_files(files: Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]) -> Loaded:
    """Reads files that are in memory: contents by path, or pairs of the two."""
    pairs = files.items() if isinstance(files, Mapping) else files
    return _load(sorted((path, _encoded(content)) for path, content in pairs), [], "")


def _encoded(content: str | bytes) -> bytes:
    # What cannot be UTF-8 stays wrong in this way, and becomes a mistake like in a file.
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def content_of(file: Path) -> bytes | Mistake:
    """What is in the file, as far as its size is allowed."""
    try:
        # Opening a pipe or a device would wait for ever.
        if not file.is_file():
            problem = "not a regular file" if file.exists() else "the link leads nowhere"
            return mistake(str(file), START, problem, "put a file in its place, or remove it")
        with file.open("rb") as stream:
            return stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        message = f"the file cannot be read: {error.strerror}"
        return mistake(str(file), START, message, "let the user that runs this read it")


def _nothing(origin: str, message: str, hint: str) -> Loaded:
    mistakes = (mistake(origin, START, message, hint),)
    return Loaded(definitions=(), mistakes=mistakes, origin=origin)


def _load(files: Iterable[tuple[str, bytes]], mistakes: list[Mistake], origin: str) -> Loaded:
    definitions: dict[str, Definition] = {}
    named: list[_Named] = []
    for path, content in files:
        fields, found = read(path, content, _HINTS)
        if fields is not None:
            definition, wrong = _validate(path, fields)
            found += wrong
            if definition is not None and not found:
                definitions[path] = definition
            name = fields.values.get("namespace")
            if isinstance(name, Scalar) and all(each.field != "namespace" for each in found):
                positions = {field: each.at for field, each in fields.values.items()}
                named.append(_Named(name.text, Source(path=path, positions=positions)))
        mistakes += found
    sources, clashes = _locate(named)
    mistakes += clashes
    wrong_paths = {each.path for each in mistakes}
    return Loaded(
        definitions=tuple(each for path, each in definitions.items() if path not in wrong_paths),
        mistakes=tuple(sorted(mistakes)),
        sources=sources,
        origin=origin,
    )


def _validate(path: str, fields: Fields) -> tuple[Definition | None, list[Mistake]]:
    try:
        return NamespaceFile.model_validate(fields.value()).definition(), []
    except ValidationError as invalid:
        found: list[Mistake] = []
        for error in invalid.errors(include_url=False, include_input=False):
            names = (*error["loc"], *error.get("ctx", {}).get("at", ()))
            name = ".".join(shown(each) for each in names if isinstance(each, str))
            node, at = _find(fields, names, is_key=error["type"] == "extra_forbidden")
            if not isinstance(node, Unreadable):
                message, hint = explain(name, error, node)
                found.append(mistake(path, at, message, hint, field=name))
        return None, found


def _find(fields: Fields, names: Sequence[str | int], *, is_key: bool) -> tuple[Node, Position]:
    """The node that an error is about: the innermost one that is there, if it is missing."""
    node: Node = fields
    at = fields.at
    for name in names:
        if isinstance(node, Items) and isinstance(name, int):
            node = node.items[name]
            at = node.at
        elif isinstance(node, Fields) and isinstance(name, str) and name in node.values:
            at = node.keys[name] if is_key else node.values[name].at
            node = node.values[name]
        else:
            break
    return node, at


class _Named(NamedTuple):
    namespace: str
    source: Source

    @property
    def is_in_own_file(self) -> bool:
        file = PurePath(self.source.path)
        return file.stem == self.namespace and file.suffix in SUFFIXES


def _locate(named: list[_Named]) -> tuple[dict[str, Source], list[Mistake]]:
    """Where each namespace is defined: in one file, of the same name."""
    sources: dict[str, Source] = {}
    found: list[Mistake] = []
    # Of a file and its copy, the copy is the one to change: files of the right name come first.
    for each in sorted(named, key=lambda each: not each.is_in_own_file):
        name, path = each.namespace, each.source.path
        file = PurePath(path)
        at = each.source.position("namespace")
        if (first := sources.get(name)) is not None:
            line, column = first.position("namespace")
            message = f"{quoted(name)} is defined in {first.path}:{line}:{column} already"
            other = "another name" if each.is_in_own_file else f"the name {shown(file.stem)}"
            hint = f"remove one of the two, or give this one {other}"
            found.append(mistake(path, at, message, hint, field="namespace"))
            continue
        sources[name] = each.source
        if not each.is_in_own_file:
            message = f"{quoted(name)} is in a file named {quoted(file.name)}"
            hint = f"name the file {name}.yaml, or correct the namespace"
            found.append(mistake(path, at, message, hint, field="namespace"))
    return sources, found
