"""Logs: one line per thing that happened, each with a stable `action`."""

import sys
from typing import Literal

import structlog

LogFormat = Literal["text", "json"]


def configure_logs(log_format: LogFormat) -> None:
    """For programs, once at their start. Logs go to stderr: stdout belongs to answers."""
    renderer: structlog.typing.Processor
    if log_format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
