"""A made-up clickstream behind a server, with a page that updates by itself: `make serve`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import headrace
from headrace.tools.cli.command import main

HERE = Path(__file__).parent
DATA = Path("data") / "clickstream"


def serve() -> int:
    """Make the clickstream if it is not there yet, and serve it until Ctrl-C."""
    options = argparse.ArgumentParser(prog="make serve")
    options.add_argument("--listen", default="127.0.0.1:8088", metavar="HOST:PORT")
    given, others = options.parse_known_args()
    if not DATA.exists():
        print("creating the views of the clickstream; Spark starts, which takes some seconds")
        try:
            with headrace.connect(DATA) as database:
                database.sql((HERE / "statements.sql").read_text(encoding="utf-8"))
        except BaseException:
            shutil.rmtree(DATA, ignore_errors=True)  # so that the next start creates all of it
            raise
    served = ["serve", "--listen", given.listen, "--pages", str(HERE / "page"), *others]
    return main(["--data", str(DATA), *served])


if __name__ == "__main__":
    sys.exit(serve())
