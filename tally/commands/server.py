"""`tally server`."""

from tally.commands.fleet import (
    ConfigOption,
    ListenOption,
    LogFormatOption,
    MetricsOption,
    run_program,
)


def server(
    config: ConfigOption,
    listen: ListenOption = None,
    metrics: MetricsOption = None,
    log_format: LogFormatOption = "text",
) -> int:
    """Run a server of a fleet: takes calls (CounterService). Until Ctrl-C or SIGTERM.

    Any number of them share the stores that the config file names.
    """
    return run_program("server", config, listen, metrics, log_format)
