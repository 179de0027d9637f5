"""Files that arrive in a directory, totalled by day and shop: `make example-files`."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from following import Followed, run

STATEMENTS = Path(__file__).with_name("statements.sql")
FILES = 12
ROWS = 25


def files(example: Followed) -> None:
    """Write one file after another, and follow the view."""
    inbox = example.folder / "inbox"
    days = [inbox / f"day=2026-11-{day}" for day in (25, 26)]
    for day in days:
        day.mkdir(parents=True)
    rng = random.Random(7)
    _write(days[0] / "0.csv", rng)
    example.db.sql(STATEMENTS.read_text(encoding="utf-8").format(path=inbox))
    for number in range(1, FILES):
        _write(days[number * 2 // FILES] / f"{number}.csv", rng)
        time.sleep(example.seconds / FILES)
        example.show("SELECT * FROM sold ORDER BY day, shop")
    example.wait("SELECT count(*) FROM sales", FILES * ROWS)
    example.show("SELECT * FROM sold ORDER BY day, shop", at_once=True)


def _write(path: Path, rng: random.Random) -> None:
    """Write a file elsewhere, and rename it into place."""
    lines = [f"{rng.choice('abc')},{rng.randint(1, 9999) / 100:.2f}" for _ in range(ROWS)]
    draft = path.with_name(f".{path.name}")
    draft.write_text("\n".join(["shop,amount", *lines, ""]), encoding="utf-8")
    draft.rename(path)


if __name__ == "__main__":
    sys.exit(run("files", files))
