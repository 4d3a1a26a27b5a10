"""What the programs print when they are ready: where they are, and how to call them."""

from collections.abc import Sequence
from pathlib import Path


def greeting(listen: str, port: int, data: Path, namespaces: Sequence[str]) -> str:
    address = f"{listen.rpartition(':')[0]}:{port}"
    namespace = "video_plays" if "video_plays" in namespaces else namespaces[0]
    request = f'{{"namespace": "{namespace}", "counter_name": "title-42", "delta": 1}}'
    return f"""\
Tally is serving on {address}
  data in {data}, namespaces: {", ".join(namespaces)}

Try, in another terminal:
  uv run tally --server {address} add {namespace} title-42 1
  uv run tally --server {address} get {namespace} title-42 --accurate
  grpcurl -plaintext -d '{request}' {address} counter.v1.CounterService/AddCount

Stop with Ctrl-C."""


def fleet_greeting(program: str, listen: str, port: int, details: Sequence[str]) -> str:
    address = f"{listen.rpartition(':')[0]}:{port}"
    lines = [f"Tally {program} is serving on {address}", *(f"  {each}" for each in details)]
    return "\n".join([*lines, "Stop with Ctrl-C."])
