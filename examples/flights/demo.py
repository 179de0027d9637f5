"""A year of flights through six views: `make demo`.

Declares a stream, four tables and six views (statements.sql), loads the tables, replays the
flights of 2013 in the order in which they took off while the tables are corrected, shows the
views as they change, and at the end compares each with its query run as plain Spark batch SQL.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import data
import pandas as pd
from replay import Replay
from rich.console import Console
from show import Dashboard, Lines

import headrace
from headrace import Database

STATEMENTS = Path(__file__).with_name("statements.sql")
FOLLOWED = (
    "delay_by_carrier",
    "delay_by_airline_and_maker",
    "departures",
    "slow_routes",
    "delay_by_weather",
)


@dataclass(frozen=True)
class Correction:
    """A change of a table, made when ``after`` of all flights have taken off."""

    after: float
    why: str
    sql: str


CORRECTIONS = (
    Correction(
        0.25,
        "Newark's wind was not 1,048 mph on 12 February: the reading is corrected",
        "UPDATE weather SET wind_speed = 10.4 WHERE wind_speed > 200",
    ),
    Correction(
        0.40,
        "Four airports of the Caribbean were missing: their past flights come in",
        """INSERT INTO airports VALUES
             ('BQN', 'Rafael Hernandez'), ('PSE', 'Mercedita'),
             ('SJU', 'Luis Munoz Marin Intl'), ('STT', 'Cyril E King')""",
    ),
    Correction(
        0.55,
        "AIRBUS INDUSTRIE and AIRBUS are one maker: the flights of its planes move",
        "UPDATE planes SET manufacturer = 'AIRBUS' WHERE manufacturer = 'AIRBUS INDUSTRIE'",
    ),
    Correction(
        0.70,
        "Envoy Air was still called American Eagle in 2013",
        "UPDATE airlines SET name = 'American Eagle Airlines Inc.' WHERE carrier = 'MQ'",
    ),
    Correction(
        0.94,
        "US Airways merges with American on 9 December: all its flights move",
        "UPDATE airlines SET name = 'American Airlines Inc.' WHERE carrier = 'US'",
    ),
)


def main() -> int:
    """Run the demo; return 1 if a view differs from batch."""
    options = _options()
    console = Console(highlight=False)
    directory = options.data or Path(tempfile.mkdtemp(prefix="headrace-flights-"))
    try:
        console.print(f"Starting Spark; the data goes to {directory}")
        with headrace.connect(directory) as db:
            if db.relations():
                console.print(f"There is a database in {directory} already: choose another --data.")
                return 2
            declare(db, console)
            replay(db, console, options.rows, options.seconds)
            equal = verify(db, console)
    except KeyboardInterrupt:
        console.print("\nStopped. What was committed stays readable:")
        console.print(f"  .venv/bin/headrace --data {directory} sql")
        return 130
    console.print(WHAT_NEXT.format(directory=directory), soft_wrap=True)
    return 0 if equal else 1


def declare(db: Database, console: Console) -> None:
    """Create the stream, the tables and the views, and load the tables."""
    for result in db.script(STATEMENTS.read_text(encoding="utf-8"), file=STATEMENTS.name):
        console.print(f"  {result}")
    for table in data.TABLES:
        copied = db.sql(f"COPY {table} FROM '{data.directory()}/{table}.csv' WITH (null = 'NA')")
        console.print(f"  {table}: {copied}")
    db.flush()


def replay(db: Database, console: Console, rows: int | None, seconds: float) -> None:
    """Insert the flights, and correct the tables meanwhile."""
    events = data.flights().slice(0, rows)
    late = data.behind(events, pd.Timedelta(hours=1))
    console.print(
        f"Replaying {events.num_rows:,} flights in the order in which they took off: "
        f"{late:.0%} come an hour or more out of order"
    )
    corrections = list(CORRECTIONS)
    with Replay(db, "flights", events, FOLLOWED) as running:
        show = Dashboard(console, running) if console.is_terminal else Lines(console, running)
        with show:
            for share in running.run(seconds):
                show.tick()
                while corrections and corrections[0].after <= share:
                    correction = corrections.pop(0)
                    show.note(f"{correction.why} ({db.sql(correction.sql)})")


def verify(db: Database, console: Console) -> bool:
    """Compare every view with its query run as plain Spark batch SQL; say so, view by view."""
    console.print("Comparing every view with its query run by plain Spark batch SQL:")
    begun, equal = time.perf_counter(), True
    views = [name for kind, name in db.relations() if kind == "materialized view"]
    for view in views:
        [(_, count, differences, verdict)] = db.verify(view)
        equal &= verdict == "equal to batch"
        console.print(f"  {view:<28}{count:>9,} rows   {differences} differences   {verdict}")
    outcome = "all views equal batch" if equal else "[red]NOT all views equal batch[/red]"
    console.print(f"{outcome} ({time.perf_counter() - begun:.0f} s)")
    return equal


WHAT_NEXT = """
Go on in the shell:   .venv/bin/headrace --data {directory} sql

  SELECT * FROM slow_routes ORDER BY avg_delay DESC LIMIT 5;
  SELECT * FROM delay_by_carrier WHERE carrier = 'HA';     -- by key: no Spark job
  UPDATE airlines SET name = 'Blue' WHERE carrier = 'B6';
  SELECT * FROM delay_by_airline_and_maker WHERE airline = 'Blue';
  EXPLAIN VIEW slow_routes;                                -- what is kept, what a change costs
  SHOW EPOCHS;                                             -- what each epoch read and wrote

The README says what else there is."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A year of flights through six views.")
    parser.add_argument("--data", type=Path, help="where to keep the database")
    parser.add_argument("--rows", type=int, help="how many flights; by default, all 336,776")
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long the replay should take (20)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
