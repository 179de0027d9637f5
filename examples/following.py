"""What the examples have in common: a database of their own, and a view shown as it changes."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import headrace
from servers.machine import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database

_SHOWN_SECONDS = 1.0


class Followed:
    """A running example: its database, its folder, and how long it goes on."""

    def __init__(self, db: Database, folder: Path, open_: ExitStack, seconds: float) -> None:
        self.db = db
        self.folder = folder
        self.open = open_
        self.seconds = seconds
        self._shown = time.monotonic()

    def show(self, query: str, *, at_once: bool = False) -> None:
        """Print the rows of a query on one line, once a second."""
        if not at_once and time.monotonic() - self._shown < _SHOWN_SECONDS:
            return
        rows = self.db.sql(query).fetchall()
        print("   ".join(" ".join(str(value) for value in row) for row in rows))
        self._shown = time.monotonic()

    def wait(self, query: str, wanted: object) -> None:
        """Wait until the one value of a query is as wanted."""
        while self.db.sql(query).fetchall()[0][0] != wanted:
            time.sleep(0.05)


def run(name: str, example: Callable[[Followed], None]) -> int:
    """Run an example in a new folder, and compare its views with Spark's batch at the end."""
    options = argparse.ArgumentParser(prog=f"make example-{name}")
    options.add_argument("--seconds", type=float, default=5.0)
    seconds = options.parse_args().seconds
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory()))
        db = open_.enter_context(headrace.connect(folder / "db", continuous=True))
        try:
            example(Followed(db, folder, open_, seconds))
        except Unavailable as reason:
            print(f"a server cannot be had here: {reason}", file=sys.stderr)
            return 1
        for row in db.sql("SHOW REJECTS").fetchall():
            print(f"rejected: {row}")
        verdicts = {row[-1] for row in db.verify()}
        print(f"views are {', '.join(sorted(verdicts))}")
        return 0 if verdicts == {"equal to batch"} else 1
