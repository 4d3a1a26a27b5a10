"""Logs: one line per thing that happened, each with a stable `action`."""

import sys
from typing import Any, Literal

import structlog

LogFormat = Literal["text", "json"]


def configure_logs(log_format: LogFormat, **always: Any) -> None:
    """For programs, once at their start. Logs go to stderr: stdout belongs to answers.

    What is in `always` is in every line.
    """

    def add_always(
        _: Any, __: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        return {**event, **always}

    renderer: structlog.typing.Processor
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    structlog.configure(
        processors=[
            add_always,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
