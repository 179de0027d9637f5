"""A made-up clickstream behind a server, with a page that updates by itself: `make serve`.

What is given is given to `headrace serve`, such as --listen 127.0.0.1:9000.
"""

from __future__ import annotations

import sys
from pathlib import Path

import headrace
from headrace.cli.command import main

HERE = Path(__file__).parent
DATA = Path("data") / "clickstream"

if __name__ == "__main__":
    print("starting Spark, which takes some seconds", flush=True)
    with headrace.connect(DATA) as database:
        if not database.relations():
            database.sql((HERE / "statements.sql").read_text(encoding="utf-8"))
    print("the console is at /, the page of the clickstream at /pages/ of:", flush=True)
    sys.exit(main(["--data", str(DATA), "serve", "--pages", str(HERE / "page"), *sys.argv[1:]]))
