"""What users would pick instead of Tally, each at its best, beside Tally in one run.

    async for figures in measure(home, QUICK, progress, results=results): ...

`home` is a new folder on a real disk. One module for each system: it starts the real thing and
drives it as a Python service would.
"""

from benchmarks.peers.comparison import measure
from benchmarks.peers.plans import FULL, QUICK, Plan
from benchmarks.peers.system import Result

__all__ = ["FULL", "QUICK", "Plan", "Result", "measure"]
