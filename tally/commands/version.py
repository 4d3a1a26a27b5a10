"""`tally version`."""

import platform
from importlib import metadata

from tally.commands.connection import JsonOption
from tally.output import ExitCode, print_json, say

VERSION_FIELDS = "JSON: tally, python, grpc."


def version(json: JsonOption = False) -> int:
    """Print the versions of tally, Python and gRPC. Calls no server."""
    versions = {
        "tally": metadata.version("tally"),
        "python": platform.python_version(),
        "grpc": metadata.version("grpcio"),
    }
    if json:
        print_json(versions)
    else:
        say("  ".join(f"{name} {number}" for name, number in versions.items()))
    return ExitCode.OK
