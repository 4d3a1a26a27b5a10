"""The strategies, by the name that a namespace gives."""

from counter_server.strategies.accurate import Accurate
from counter_server.strategies.best_effort import BestEffort
from counter_server.strategies.eventual import CacheLayer, Eventual
from counter_server.strategies.logged import EventPath, Logged
from counter_server.strategies.rolling_window import RollingWindow
from counter_server.strategies.shadow import Shadow
from counter_server.strategies.strategy import Freshness, Outcome, Source, Strategy, Value

__all__ = [
    "Accurate",
    "BestEffort",
    "CacheLayer",
    "EventPath",
    "Eventual",
    "Freshness",
    "Logged",
    "Outcome",
    "RollingWindow",
    "Shadow",
    "Source",
    "Strategy",
    "Value",
]
