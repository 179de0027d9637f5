"""PayLedger: balances by a fold, and a policy that changes in the past: `make example-payledger`.

It loads made-up payments, moves the reserve of one segment from 10% to 15% as of three days ago,
and shows how its balances follow. With `--serve` it has a server instead, with a page that shows
balances, freshness and what is dirty, until Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import balances
import events

import headrace
from headrace.tools.cli.command import main

if TYPE_CHECKING:
    from headrace import Database

HERE = Path(__file__).parent
_BATCHES = 10
_BY_SEGMENT = """SELECT policy_version AS version, count(*) AS balances,
    sum(available_balance) AS available, sum(pending_balance) AS pending,
    sum(reserve_hold) AS reserve
    FROM merchant_balance WHERE segment = ? GROUP BY policy_version ORDER BY version"""


def opened(directory: Path) -> Database:
    """Open the database with its fold."""
    return headrace.connect(directory, functions=[balances.merchant_balance_of])


def fill(db: Database, count: int, merchants: int) -> None:
    """Create everything, and load payments as they arrive, in batches."""
    begun = time.perf_counter()

    def report(what: str) -> None:
        print(f"{time.perf_counter() - begun:5.1f} s: {what}", flush=True)

    report("creating the stream, the tables and the views")
    db.sql((HERE / "statements.sql").read_text(encoding="utf-8"))
    db.insert("merchants", events.merchants(merchants))
    db.insert("reserve_policy", events.policies())
    arrived = events.payments(count, merchants)
    size = -(-arrived.num_rows // _BATCHES)
    for first in range(0, arrived.num_rows, size):
        db.insert("payments", arrived.slice(first, size))
        report(
            f"{min(first + size, arrived.num_rows):,} of {arrived.num_rows:,} payments have arrived"
        )
    db.flush()
    report("all views show them")


def change(db: Database) -> None:
    """Change the policy, and show the balances of its segment before and after."""
    for row in db.sql(f"EXPLAIN CHANGE {events.change()}").to_arrow().to_pylist():
        print("it would change " + ", ".join(f"{name} {value}" for name, value in row.items()))
    _show(db, "before")
    begun = time.perf_counter()
    db.sql(events.change())
    db.flush()
    print(f"changed in {time.perf_counter() - begun:.1f} s")
    _show(db, "after")


def _show(db: Database, when: str) -> None:
    for row in db.sql(_BY_SEGMENT, [events.CHANGED]).to_arrow().to_pylist():
        print(f"{when}: " + ", ".join(f"{name} {value}" for name, value in row.items()))


def run() -> int:
    """Run the example as the command line says."""
    options = argparse.ArgumentParser(prog="make example-payledger")
    options.add_argument("--events", type=int, default=20_000)
    options.add_argument("--merchants", type=int, default=500)
    options.add_argument("--serve", action="store_true", help="serve the page, until Ctrl-C")
    options.add_argument("--listen", default="127.0.0.1:8089", metavar="HOST:PORT")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "payledger"
        with opened(directory) as db:
            fill(db, given.events, given.merchants)
            if not given.serve:
                change(db)
                verdicts = {row[-1] for row in db.verify()}
                print(f"views are {', '.join(sorted(verdicts))}")
                return 0 if verdicts == {"equal to batch"} else 1
        print(f"page: http://{given.listen}/pages/   console: http://{given.listen}/", flush=True)
        served = ["serve", "--listen", given.listen, "--pages", str(HERE / "page")]
        return main(["--data", str(directory), *served, "--functions", str(HERE / "balances.py")])


if __name__ == "__main__":
    sys.exit(run())
