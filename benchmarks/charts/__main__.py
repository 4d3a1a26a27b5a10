"""`python -m benchmarks.charts`: draws the images of all recorded results again."""

import json
from pathlib import Path

from benchmarks.charts.images import draw

_RESULTS = Path(__file__).parent.parent / "results"


def main() -> None:
    for path in sorted(_RESULTS.glob("*.json")):
        for written in draw(json.loads(path.read_text()), _RESULTS, path.stem):
            print(
                written.relative_to(Path.cwd()) if written.is_relative_to(Path.cwd()) else written
            )


if __name__ == "__main__":
    main()
