"""The config file of a fleet: what can be in it, and reading it."""

from tally.config.loading import load
from tally.config.settings import Config, ConfigError, ProgramConfig, ServerConfig

__all__ = ["Config", "ConfigError", "ProgramConfig", "ServerConfig", "load"]
