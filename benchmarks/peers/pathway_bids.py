"""Both queries in Pathway. Runs in Pathway's environment.

``streaming`` commits what has arrived every 1.5 s, as it ships, and never ends of its own accord:
the run ends when totals over the answer, which it keeps as well, account for every row. ``static``
takes the files in one commit. The sink is ``null``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any


def main() -> None:
    begun = time.perf_counter()
    options = _options()
    os.environ["PATHWAY_THREADS"] = str(options.threads)
    import pathway as pw  # noqa: PLC0415  (importing Pathway is a part of starting it)

    start_up = time.perf_counter() - begun
    begun = time.perf_counter()
    result, totals = _graph(pw, options)
    pw.io.null.write(result)
    seen: list[int] = []

    def finish() -> None:
        found = {
            "start_up_seconds": round(start_up, 3),
            "run_seconds": [round(time.perf_counter() - begun, 3)],
            "answer": seen,
        }
        print(json.dumps(found), flush=True)

    def changed(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:  # noqa: ARG001, FBT001
        if is_addition:
            seen[:] = [row["rows"], row["first"], row["second"]]
            if options.mode == "streaming" and row["accounted"] == options.rows:
                finish()
                os._exit(0)

    if options.answer or options.mode == "streaming":
        pw.io.subscribe(totals, changed)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    finish()


def _graph(pw: Any, options: argparse.Namespace) -> tuple[Any, Any]:
    """Return the answer, and one row of totals over it."""
    # Pathway reads no instants from JSON, and keeps the name "id" for itself.
    bid = pw.schema_from_types(auction=int, bidder=int, price=int, dateTime=str)
    auction = pw.schema_from_types(auction_id=int, seller=int, category=int, initialBid=int)

    def read(path: Path, schema: Any, paths: dict[str, str] | None = None) -> Any:
        return pw.io.jsonlines.read(
            str(path), schema=schema, mode=options.mode, json_field_paths=paths
        )

    bids = read(options.bids, bid)
    if options.query == "aggregate":
        result = bids.groupby(pw.this.auction).reduce(
            pw.this.auction,
            n=pw.reducers.count(),
            total=pw.reducers.sum(pw.this.price),
            average=pw.reducers.avg(pw.this.price),
        )
        return result, result.reduce(
            rows=pw.reducers.count(),
            first=pw.reducers.sum(pw.this.n),
            second=pw.reducers.sum(pw.this.total),
            accounted=pw.reducers.sum(pw.this.n),
        )
    auctions = read(options.auctions, auction, {"auction_id": "/id"})
    result = bids.join(auctions, pw.left.auction == pw.right.auction_id).select(
        pw.left.auction, pw.left.bidder, pw.left.price, pw.right.seller, pw.right.category
    )
    return result, result.reduce(
        rows=pw.reducers.count(),
        first=pw.reducers.sum(pw.this.price),
        second=pw.reducers.sum(pw.this.seller),
        accounted=pw.reducers.count(),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("query", choices=("aggregate", "join"))
    parser.add_argument("bids", type=Path)
    parser.add_argument("auctions", type=Path)
    parser.add_argument("rows", type=int, help="how many rows the answer accounts for")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--answer", action="store_true", help="also work out totals of the answer")
    parser.add_argument("--mode", choices=("streaming", "static"), default="streaming")
    return parser.parse_args()


if __name__ == "__main__":
    main()
