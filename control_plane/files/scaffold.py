"""A new namespace file with every field that there is, as a comment where it is not needed.

What it says comes from the model, so it is never out of date.
"""

from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from control_plane.files.durations import parse_ms
from control_plane.files.loader import load_files
from control_plane.files.model import ONLY_WITH, REQUIRED_WITH, SECTIONS, NamespaceFile
from control_plane.files.schema import SCHEMA_PATH, modeline
from control_plane.planning.written import written_text
from counter.namespaces import Strategy

COLUMNS = 100


def check_name(name: str) -> tuple[str, str] | None:
    """What is wrong with the name of a namespace: message and hint, as for a file."""
    quoted = "".join(f"\\U{ord(each):08x}" for each in name)
    loaded = load_files({f"{name}.yaml": f'namespace: "{quoted}"\nstrategy: eventual\n'})
    wrong = [(each.message, each.hint) for each in loaded.mistakes if each.field == "namespace"]
    return wrong[0] if wrong else None


def scaffold(
    name: str, strategy: Strategy = Strategy.EVENTUAL, *, schema_path: str = SCHEMA_PATH
) -> str:
    """The text of the file NAME.yaml. The name must be one that `check_name` takes."""
    assert check_name(name) is None, "the caller says what is wrong with a name"
    lines = [modeline(schema_path)]
    values = {"namespace": name, "strategy": str(strategy)}
    for field, schema in NamespaceFile.model_json_schema()["properties"].items():
        is_set = field in values or REQUIRED_WITH.get(field) is strategy
        inside = _fields_inside(field, strategy)
        lines += ["", *_explained(schema, inside)]
        for line in _field_lines(field, values.get(field, _example(schema)), inside):
            lines.append(line if is_set else f"# {line}")
    return "\n".join(lines) + "\n"


def _fields_inside(field: str, strategy: Strategy) -> dict[str, dict[str, Any]]:
    """The schema of each field of a section. Those that do not go with the strategy are left out:
    a section is made a comment, and none, as a whole."""
    if field not in SECTIONS:
        return {}
    fields: dict[str, dict[str, Any]] = SECTIONS[field].model_json_schema()["properties"]
    return {
        name: schema
        for name, schema in fields.items()
        if strategy in ONLY_WITH.get(f"{field}.{name}", Strategy)
    }


def _explained(schema: dict[str, Any], inside: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield from (f"# {line}" for line in wrap(_sentences(schema), COLUMNS - len("# ")))
    width = max(map(len, inside), default=0) + 2
    for name, each in inside.items():
        first, *more = wrap(_sentences(each), COLUMNS - len("#   ") - width)
        yield f"#   {name:{width}}{first}"
        yield from (f"#   {'':{width}}{line}" for line in more)


def _sentences(schema: dict[str, Any]) -> str:
    default = schema.get("default", "")
    words: str = schema["description"]
    return words if default == "" else f"{words} Default: {default}."


def _example(schema: dict[str, Any]) -> Any:
    """A value that the field takes: its default, if that can be seen."""
    if schema.get("default", "") != "":
        return schema["default"]
    return (schema.get("examples") or schema.get("enum") or [None])[0]


def _field_lines(field: str, value: Any, inside: dict[str, dict[str, Any]]) -> Iterator[str]:
    if not inside:
        yield f"{field}: {_written(value)}"
        return
    yield f"{field}:"
    if isinstance(value, list):
        for entry in value:
            yield f"  - {{{', '.join(f'{name}: {_written(entry[name])}' for name in inside)}}}"
    else:
        for name, schema in inside.items():
            yield f"  {name}: {_written(_example(schema))}"


def _written(value: Any) -> str:
    is_duration = isinstance(value, str) and parse_ms(value) is not None
    return written_text(value) if isinstance(value, str) and not is_duration else str(value)
