"""`tally check`: the namespaces of a folder, checked without a server."""

from pathlib import Path
from typing import Annotated

import typer

from tally.commands.connection import JsonOption
from tally.commands.extras import needs_server_extra
from tally.output import ExitCode, Failure, print_json, say, write_line

CHECK_FIELDS = (
    "JSON: directory, namespaces (the names without mistakes), mistakes, a list of: path, line, "
    "column, field, message, hint."
)


def check(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="One YAML file per namespace.", show_default=False)
    ],
    json: JsonOption = False,
) -> int:
    """Check a folder of namespaces: all mistakes of all files in one run."""
    with needs_server_extra("tally check"):
        from control_plane.loader import load_directory
    if not directory.is_dir():
        raise Failure(
            f"{directory} is not a folder. Give the folder that holds the namespaces' YAML files.",
            ExitCode.USAGE,
        )
    loaded = load_directory(directory)
    exit_code = ExitCode.REFUSED if loaded.mistakes else ExitCode.OK
    if json:
        print_json(
            {
                "directory": str(directory),
                "namespaces": [each.name for each in loaded.definitions],
                "mistakes": [
                    {
                        "path": str(each.path),
                        "line": each.line,
                        "column": each.column,
                        "field": each.field,
                        "message": each.message,
                        "hint": each.hint,
                    }
                    for each in loaded.mistakes
                ],
            }
        )
        return exit_code
    for mistake in loaded.mistakes:
        field = f"{mistake.field}: " if mistake.field else ""
        say(f"{mistake.path}:{mistake.line}:{mistake.column}: {field}{mistake.message}")
        if mistake.hint:
            say(f"    {mistake.hint}", style="dim")
    if not loaded.mistakes:
        say(f"{_counted(len(loaded.definitions), 'namespace')}, no mistakes", style="green")
        return exit_code
    files = len({str(each.path) for each in loaded.mistakes})
    write_line("")
    say(
        f"{_counted(len(loaded.mistakes), 'mistake')} in {_counted(files, 'file')}: "
        "a server would keep what it has and load nothing of this",
        style="bold red",
    )
    return exit_code


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
