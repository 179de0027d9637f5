"""A made-up clickstream, counted by url, device and user: `make example-clickstream`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from following import Followed, run

STATEMENTS = Path(__file__).with_name("statements.sql")


def clickstream(example: Followed) -> None:
    """Follow the visits for a while."""
    example.db.sql(STATEMENTS.read_text(encoding="utf-8"))
    ends = time.monotonic() + example.seconds
    while time.monotonic() < ends:
        example.show("SELECT url, visits FROM visits_by_url ORDER BY visits DESC")
        time.sleep(0.2)
    (source,) = example.db.sql("SHOW SOURCES").to_arrow().to_pylist()
    print(f"{source['duplicates']} visits came twice; the watermark is {source['watermark']}")


if __name__ == "__main__":
    sys.exit(run("clickstream", clickstream))
