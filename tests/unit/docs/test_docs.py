"""The documentation is complete: the pages explain what the code has, and their links resolve."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.rpc import code_pb2
from typer.main import get_command

from clients import failures
from control_plane.files.model import SECTIONS, NamespaceFile
from counter import errors
from counter.rpc.status import code_of
from counter.settings import Platform
from counter.v1 import counter_service_pb2, namespace_service_pb2, rollup_service_pb2
from tally.commands.root import app

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PACKAGES = ("counter", "counter_server", "rollup_worker", "control_plane", "clients", "tally")
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def page(name: str) -> str:
    return (DOCS / name).read_text()


def everything() -> str:
    return "\n".join(each.read_text() for each in DOCS.rglob("*.md"))


def missing(names: set[str], text: str) -> set[str]:
    """The names that are not there in code font: `NAME`, or as the start of `NAME something`."""
    return {name for name in names if not re.search(rf"`{re.escape(name)}[`\s\[\\]", text)}


def subclasses(kind: type[errors.TallyError]) -> Iterator[type[errors.TallyError]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def source_trees() -> Iterator[ast.AST]:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            if "v1" not in file.parts:
                yield ast.parse(file.read_text())


def keyword_strings(keyword: str) -> set[str]:
    """Every string that the code passes as this keyword argument."""
    return {
        node.value.value
        for tree in source_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword)
        and node.arg == keyword
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def test_every_reason_of_the_server_is_explained() -> None:
    reasons = {each.reason for each in subclasses(errors.TallyError)} | errors.INVALID_REASONS
    assert {"TOKEN_EXPIRED", "STORE_UNAVAILABLE", "INTERNAL", "SETUP"} <= reasons
    assert missing(reasons, page("errors.md")) == set()


def test_every_reason_of_the_sdk_is_explained() -> None:
    by_code = {reason for _, reason in failures._BY_CODE.values()}
    reasons = by_code | set(failures._BY_REASON) | keyword_strings("reason")
    assert {"OUTCOME_UNKNOWN", "NOT_SENT", "NO_ANSWER"} <= reasons
    assert missing(reasons, page("errors.md")) == set()


def test_every_reason_has_the_status_that_the_page_says() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` `([A-Z_]+)` \|", page("errors.md"), re.MULTILINE)
    said = {reason: code for code, reason in rows}
    for kind in subclasses(errors.TallyError):
        if "reason" in vars(kind) and kind.reason in said:
            error = kind("what happened")
            assert said[kind.reason] == code_pb2.Code.Name(code_of(error)), kind.reason
    assert len(said) >= 12


@pytest.mark.parametrize(
    "file",
    [
        counter_service_pb2.DESCRIPTOR,
        namespace_service_pb2.DESCRIPTOR,
        rollup_service_pb2.DESCRIPTOR,
    ],
    ids=lambda file: file.name,
)
def test_every_call_of_the_contract_is_in_the_docs(file: FileDescriptor) -> None:
    calls = {
        method.name for service in file.services_by_name.values() for method in service.methods
    }
    assert calls
    assert missing(calls, everything()) == set()


def test_every_field_of_a_namespace_file_is_explained() -> None:
    names = set(NamespaceFile.model_fields) - set(SECTIONS)
    for section, fields_of_it in SECTIONS.items():
        names |= {f"{section}.{name}" for name in fields_of_it.model_fields}
    assert missing(names, page("namespaces.md")) == set()


def test_every_platform_setting_is_explained() -> None:
    names = {field.name for field in fields(Platform)}
    assert missing(names, page("command-line.md")) == set()


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for child_name, child in children.items():
        yield from commands(child, f"{name} {child_name}")


def test_every_command_is_explained() -> None:
    names = {name for name, _ in commands(get_command(app), "tally")}
    assert {"tally serve", "tally token status"} <= names
    assert missing(names, page("command-line.md")) == set()


def test_every_option_is_explained() -> None:
    root = get_command(app)
    options = {
        option
        for command in [root, *(command for _, command in commands(root, "tally"))]
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert {"--listen", "--log-retention", "--server", "--write-tokens"} <= options
    assert missing(options - {"--help"}, page("command-line.md")) == set()


def test_every_log_action_is_explained() -> None:
    actions = keyword_strings("action")
    assert {"store_failed", "fold_lag_alarm", "stopping"} <= actions
    table = page("operating-embedded.md").partition("## What each log line means")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == actions


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_somewhere(file: Path) -> None:
    broken = []
    for link in LINK.findall(FENCED.sub("", file.read_text())):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


def test_decisions_are_numbered_and_complete() -> None:
    records = sorted((DOCS / "adr").glob("*.md"))
    assert [record.name[:4] for record in records] == [
        f"{number:04d}" for number in range(1, len(records) + 1)
    ]
    for record in records:
        text = record.read_text()
        assert text.startswith(f"# {record.name[:4]}: "), record.name
        for part in ("**Context.**", "**Decision.**", "**Consequences.**"):
            assert part in text, f"{record.name} has no {part}"
        assert f"adr/{record.name}" in (ROOT / "ARCHITECTURE.md").read_text(), record.name
