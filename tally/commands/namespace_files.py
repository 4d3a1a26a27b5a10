"""The namespace files of a folder, as they are sent to a control plane."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clients import Mistake, Plan
from tally.commands.extras import needs_server_extra
from tally.output import ExitCode, Failure

if TYPE_CHECKING:
    from control_plane.files.mistakes import Mistake as LocalMistake

FolderArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="One YAML file per namespace: all that there should be.",
        show_default=False,
    ),
]


def require_folder(directory: Path) -> None:
    if not directory.is_dir():
        raise Failure(
            f"{directory} is not a folder. Give the folder that holds the namespaces' YAML files.",
            ExitCode.USAGE,
        )


def read_folder(directory: Path, command: str) -> Mapping[str, str] | Plan:
    """What is in each namespace file, by path; a plan of mistakes if some cannot be sent at all.

    Which files count is the loader's rule, the same as for a folder that a control plane watches.
    """
    with needs_server_extra(command):
        from control_plane.files.loader import (
            FILES_MAX,
            content_of,
            is_namespace_file,
            load_directory,
            load_files,
        )
        from control_plane.files.mistakes import Mistake as LocalMistake
    require_folder(directory)
    try:
        names = sorted(filter(is_namespace_file, os.listdir(directory)))
    except OSError:
        names = []
    if not 0 < len(names) <= FILES_MAX:
        return _plan_of(load_directory(directory).mistakes)
    files: dict[str, str] = {}
    mistakes: list[LocalMistake] = []
    for name in names:
        path = directory / name
        content = content_of(path)
        if isinstance(content, LocalMistake):
            mistakes.append(content)
            continue
        try:
            files[str(path)] = content.decode()
        except UnicodeDecodeError:
            mistakes += load_files([(str(path), content)]).mistakes
    return _plan_of(mistakes) if mistakes else files


def _plan_of(mistakes: Iterable["LocalMistake"]) -> Plan:
    found = (
        Mistake(
            path=each.path,
            line=each.line,
            column=each.column,
            field=each.field,
            message=each.message,
            hint=each.hint,
        )
        for each in mistakes
    )
    return Plan(base_version=0, mistakes=tuple(found), changes=(), consequence=None)
