"""Tally: distributed counters that are never wrong.

    from tally import CounterClient

    async with CounterClient("127.0.0.1:50051", namespace="video_plays") as client:
        await client.add("title-42")
        value = await client.get("title-42")

`SyncCounterClient` has the same methods for threads and scripts.
"""

from importlib.metadata import version

import clients
from clients import *  # noqa: F403 (the SDK says itself what is public)

__version__ = version("tally")

__all__ = ["__version__"]
__all__ += clients.__all__
