"""`tally namespaces new`: writes a commented file for a new namespace."""

import shlex
from pathlib import Path

from clients import Strategy
from tally.commands.extras import needs_server_extra
from tally.commands.namespace_files import require_folder
from tally.output import ExitCode, Failure, say


def write_new(name: str, strategy: Strategy, directory: Path) -> int:
    with needs_server_extra("tally namespaces new"):
        from control_plane.files.loader import SUFFIXES
        from control_plane.files.scaffold import check_name, scaffold
        from counter import namespaces
    wrong = check_name(name)
    if wrong is not None:
        message, hint = wrong
        raise Failure(f"{name!r} cannot be the name of a namespace: {message} ({hint}).")
    require_folder(directory)
    for suffix in SUFFIXES:
        if (taken := directory / f"{name}{suffix}").exists():
            raise Failure(f"{taken} is there already. Edit it, or choose another name.")
    file = directory / f"{name}.yaml"
    text = scaffold(name, namespaces.Strategy(strategy))
    try:
        # Never over a file that came into being meanwhile.
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}.") from error
    folder = shlex.quote(str(directory))
    say(f"wrote {file}", style="green")
    say("edit it, then:")
    say(f"    tally check {folder}")
    say(f"    tally plan {folder}")
    return ExitCode.OK
