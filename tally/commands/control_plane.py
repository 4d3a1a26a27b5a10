"""`tally control-plane`."""

from tally.commands.fleet import (
    ConfigOption,
    ListenOption,
    LogFormatOption,
    MetricsOption,
    run_program,
)


def control_plane(
    config: ConfigOption,
    listen: ListenOption = None,
    metrics: MetricsOption = None,
    log_format: LogFormatOption = "text",
) -> int:
    """Run a control plane of a fleet: loads namespaces (NamespaceService). Until Ctrl-C or SIGTERM.

    Servers and workers go on without it, with the namespaces that were applied last.
    """
    return run_program("control-plane", config, listen, metrics, log_format)
