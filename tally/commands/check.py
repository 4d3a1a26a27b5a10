"""`tally check`: the namespaces of a folder, checked without a server."""

from pathlib import Path
from typing import Annotated

import typer

from tally.commands.connection import JsonOption
from tally.commands.extras import needs_server_extra
from tally.commands.mistakes_view import (
    MISTAKE_FIELDS,
    counted,
    mistake_documents,
    print_mistakes,
)
from tally.commands.namespace_files import require_folder
from tally.output import ExitCode, print_json, say

CHECK_FIELDS = (
    "JSON: directory, namespaces (the names without mistakes), mistakes, a list of: "
    f"{MISTAKE_FIELDS}."
)


def check(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="One YAML file per namespace.", show_default=False)
    ],
    json: JsonOption = False,
) -> int:
    """Check a folder of namespaces: all mistakes of all files in one run."""
    with needs_server_extra("tally check"):
        from control_plane.files.loader import load_directory
    require_folder(directory)
    loaded = load_directory(directory)
    exit_code = ExitCode.REFUSED if loaded.mistakes else ExitCode.OK
    if json:
        print_json(
            {
                "directory": str(directory),
                "namespaces": [each.name for each in loaded.definitions],
                "mistakes": mistake_documents(loaded.mistakes),
            }
        )
    elif loaded.mistakes:
        print_mistakes(loaded.mistakes, "a server would keep what it has and load nothing of this")
    else:
        say(f"{counted(len(loaded.definitions), 'namespace')}, no mistakes", style="green")
    return exit_code
