"""`tally worker`."""

from tally.commands.fleet import (
    ConfigOption,
    ListenOption,
    LogFormatOption,
    MetricsOption,
    run_program,
)


def worker(
    config: ConfigOption,
    listen: ListenOption = None,
    metrics: MetricsOption = None,
    log_format: LogFormatOption = "text",
) -> int:
    """Run a worker of a fleet: closes windows and folds (RollupService). Until Ctrl-C or SIGTERM.

    Any number of them spread the shards among themselves.
    """
    return run_program("worker", config, listen, metrics, log_format)
