"""What single settings may be: text, numbers, durations and addresses, each with its range."""

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated

from pydantic import BeforeValidator, StringConstraints

from control_plane.files.mistakes import quoted
from control_plane.files.values import DURATION_SCHEMA, duration_between, own_error
from counter.metrics import PROCESSES_MAX
from counter.settings import LANES_MAX, SHARDS_MAX

PORT_MAX = 65_535
HOSTS_MAX = 100
COPIES_MAX = 100
PASSES_IN_PARALLEL_MAX = 256
REQUESTS_IN_FLIGHT_MAX = 10_000

_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_HOST_ONLY = re.compile(_HOST)
_ADDRESS = re.compile(rf"(?:{_HOST}|\[[0-9A-Fa-f:.]+\]):([0-9]{{1,5}})")
_HOST_AND_PORT = re.compile(r"[^:\s]+:[0-9]{1,5}|\[.*\](:[0-9]*)?")


def _pattern(pattern: str, what: str, rule: str) -> Callable[[object], object]:
    """A validator of text that says in words what the pattern wants."""
    compiled = re.compile(pattern)

    def matching(value: object) -> object:
        if isinstance(value, str) and not compiled.fullmatch(value):
            raise own_error("is empty" if not value else f"{quoted(value)} is not {what}", rule)
        return value

    return matching


def _address(port_min: int, example: str) -> Callable[[object], object]:
    def address(value: object) -> object:
        if not isinstance(value, str):
            return value
        match = _ADDRESS.fullmatch(value)
        if match is None:
            raise own_error(f"{quoted(value)} is not HOST:PORT", f"write it like {example}")
        if not port_min <= int(match[1]) <= PORT_MAX:
            raise own_error(
                f"{quoted(value)} has no possible port", f"use {port_min} to {PORT_MAX}"
            )
        return value

    return address


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _host(value: object) -> object:
    if not isinstance(value, str) or _HOST_ONLY.fullmatch(value) or _is_ip(value):
        return value
    if _HOST_AND_PORT.fullmatch(value):
        raise own_error(f"{quoted(value)} has a port", "give the port once, in cassandra.port")
    raise own_error(f"{quoted(value)} is not a host", "write a host name or an IP address")


def _between(least: int, most: int) -> Callable[[object], object]:
    def number(value: object) -> object:
        if type(value) is int and not least <= value <= most:
            message = f"{quoted(str(value))} is out of range"
            raise own_error(message, f"write a number from {least} to {most}")
        return value

    return number


# Durations, in milliseconds once they are validated.
WindowLength = Annotated[int, BeforeValidator(duration_between(100, 3_600_000)), DURATION_SCHEMA]
AcceptLimit = Annotated[int, BeforeValidator(duration_between(100, 3_600_000)), DURATION_SCHEMA]
ClockSkew = Annotated[int, BeforeValidator(duration_between(1, 60_000)), DURATION_SCHEMA]
Retention = Annotated[
    int, BeforeValidator(duration_between(60_000, 720 * 3_600_000)), DURATION_SCHEMA
]
RequestTimeout = Annotated[int, BeforeValidator(duration_between(10, 60_000)), DURATION_SCHEMA]
ConnectionAge = Annotated[
    int, BeforeValidator(duration_between(1_000, 24 * 3_600_000)), DURATION_SCHEMA
]
CacheTimeout = Annotated[int, BeforeValidator(duration_between(1, 10_000)), DURATION_SCHEMA]

Host = Annotated[str, BeforeValidator(_host)]
ListenAddress = Annotated[str, BeforeValidator(_address(0, "127.0.0.1:50051"))]
MetricsAddress = Annotated[str, BeforeValidator(_address(0, "127.0.0.1:9464"))]
ServerAddress = Annotated[str, BeforeValidator(_address(1, "127.0.0.1:11211"))]
Port = Annotated[int, BeforeValidator(_between(1, PORT_MAX))]
Shards = Annotated[int, BeforeValidator(_between(1, SHARDS_MAX))]
Lanes = Annotated[int, BeforeValidator(_between(1, LANES_MAX))]
Copies = Annotated[int, BeforeValidator(_between(1, COPIES_MAX))]
Passes = Annotated[int, BeforeValidator(_between(1, PASSES_IN_PARALLEL_MAX))]
Processes = Annotated[int, BeforeValidator(_between(1, PROCESSES_MAX))]
RequestsInFlight = Annotated[int, BeforeValidator(_between(1, REQUESTS_IN_FLIGHT_MAX))]
FilePath = Annotated[str, StringConstraints(min_length=1)]
_NAME_RULE = "use 1 to 64 letters, digits, _, . and -, with a letter or digit first"
Region = Annotated[
    str, BeforeValidator(_pattern(r"[A-Za-z0-9][\w.-]{0,63}", "a region's name", _NAME_RULE))
]
DataCenter = Annotated[
    str,
    BeforeValidator(
        _pattern(r"[A-Za-z0-9][\w.-]{0,63}", "a data centre's name", _NAME_RULE),
    ),
]
KeyPrefix = Annotated[
    str,
    BeforeValidator(
        _pattern(
            r"[!-~]{1,32}", "a prefix of keys", "use 1 to 32 printable characters without spaces"
        )
    ),
]
Keyspace = Annotated[
    str,
    BeforeValidator(
        _pattern(
            r"[a-z][a-z0-9_]{0,47}",
            "a keyspace's name",
            "use 1 to 48 of a to z, 0 to 9 and _, with a letter first",
        )
    ),
]
