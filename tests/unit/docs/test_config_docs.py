"""docs/fleet-config.md explains every setting, with the default that it has."""

import re
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from control_plane.files.durations import format_ms, parse_ms
from tally.config.messages import all_settings
from tally.config.model import ConfigFile

PAGE = Path(__file__).parents[3] / "docs" / "fleet-config.md"
ROW = re.compile(r"^\| `([a-z_.]+)` \| (.+?) \| (.+?) \| ", re.MULTILINE)
# What its default is follows from other settings.
DERIVED = {"memcached.prefix"}


def field_of(setting: str) -> FieldInfo:
    *sections, name = setting.split(".")
    section: Any = ConfigFile
    for each in sections:
        kinds = get_args(section.model_fields[each].annotation)
        section = next(iter(kinds), section.model_fields[each].annotation)
    field: FieldInfo = section.model_fields[name]
    return field


def default_in_words(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=False)
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "not set"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    assert field.examples
    is_duration = parse_ms(field.examples[0]) is not None
    return f"`{format_ms(default) if is_duration else default}`"


def test_every_setting_is_explained() -> None:
    explained = [setting for setting, _, _ in ROW.findall(PAGE.read_text())]
    assert sorted(explained) == sorted(all_settings())
    assert len(explained) > 25


def test_every_default_is_the_one_that_holds() -> None:
    for setting, _, default in ROW.findall(PAGE.read_text()):
        if setting not in DERIVED:
            assert default.startswith(default_in_words(field_of(setting))), setting


def refused(setting: str, value: object) -> str:
    """What the model says to this value; empty if it takes it."""
    content: Any = {"cassandra": {"contact_points": ["a"], "data_center": "b"}}
    if setting.startswith("memcached."):
        content["memcached"] = {"servers": ["a:1"]}
    *sections, name = setting.split(".")
    place = content
    for each in sections:
        place = place.setdefault(each, {})
    place[name] = value
    try:
        ConfigFile.model_validate(content)
    except ValidationError as error:
        return str(error)
    return ""


def test_ranges_are_those_that_hold() -> None:
    ranges = {
        setting: match.groups()
        for setting, values, _ in ROW.findall(PAGE.read_text())
        if (match := re.match(r"`?(\d+(?:[smhd]|ms)?)`? to `?(\d+(?:[smhd]|ms)?)`?(?:,|$)", values))
    }
    assert len(ranges) >= 10
    for setting, (least, most) in ranges.items():
        least_ms, most_ms = parse_ms(least), parse_ms(most)
        if least_ms is None or most_ms is None:
            within: list[Any] = [int(least), int(most)]
            beyond: list[Any] = [int(least) - 1, int(most) + 1]
        else:
            within = [least, most]
            beyond = [f"{least_ms - 1}ms", f"{most_ms + 1}ms"]
        assert [refused(setting, each) for each in within] == ["", ""], setting
        assert all("out of range" in refused(setting, each) for each in beyond), setting
