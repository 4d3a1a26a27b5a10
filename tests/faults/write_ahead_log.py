"""SQLite's write-ahead log, as far as it takes to tear its end as a crash can.

The format is SQLite's (https://www.sqlite.org/fileformat.html#the_write_ahead_log): a header of 32
bytes, then frames of 24 bytes and a page. Frames count up to the last one that ends a transaction
and whose salts and running checksum are right. What an fsync has promised lies before that end.
"""

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
_LITTLE_ENDIAN_SUMS = 0x377F0682

# From the last frame of the log and a source of chance: what stands where the next one would be.
TEARS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "nothing": lambda frame, chance: b"",
    "half a frame": lambda frame, chance: frame[: len(frame) // 2],
    "zeros": lambda frame, chance: bytes(3 * len(frame)),
    "garbage": lambda frame, chance: chance.randbytes(5 * len(frame) + 7),
    "a frame with a page that was not written": lambda frame, chance: (
        frame[:FRAME_HEADER_BYTES] + bytes(len(frame) - FRAME_HEADER_BYTES)
    ),
    "a frame that was written before": lambda frame, chance: frame,
}


class ValidPart(NamedTuple):
    """Of a log: where its last transaction ends, and how many have ended before that."""

    end: int
    transactions: int
    frame_bytes: int


def valid_part(path: Path) -> ValidPart:
    log = path.read_bytes()
    magic, _, page_bytes, _, salt_1, salt_2, *sums = struct.unpack(">8I", log[:HEADER_BYTES])
    words = "<" if magic == _LITTLE_ENDIAN_SUMS else ">"
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    running = (sums[0], sums[1])
    end, transactions, at = HEADER_BYTES, 0, HEADER_BYTES
    while at + frame_bytes <= len(log):
        frame = log[at : at + frame_bytes]
        _, pages_after, *salts, sum_1, sum_2 = struct.unpack(">6I", frame[:FRAME_HEADER_BYTES])
        running = _checksum(frame[:8] + frame[FRAME_HEADER_BYTES:], running, words)
        if salts != [salt_1, salt_2] or running != (sum_1, sum_2):
            break
        at += frame_bytes
        if pages_after:
            end, transactions = at, transactions + 1
    return ValidPart(end, transactions, frame_bytes)


def tear(data: Path, tail: str) -> int:
    """Cuts the log after its last transaction and puts something there instead; answers how many
    transactions are left in it."""
    log = data / "tally.db-wal"
    part = valid_part(log)
    with log.open("r+b") as file:
        file.seek(part.end - part.frame_bytes)
        frame = file.read(part.frame_bytes)
        file.truncate(part.end)
        file.seek(part.end)
        file.write(TEARS[tail](frame, random.Random(15)))
    return part.transactions


def _checksum(data: bytes, start: tuple[int, int], words: str) -> tuple[int, int]:
    first, second = start
    numbers = struct.unpack(f"{words}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
