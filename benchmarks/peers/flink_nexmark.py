"""Nexmark's queries in Flink SQL, as streaming jobs in one process. Runs in Flink's environment.

Settings as they ship save the parallelism; state on the heap; the sink is ``blackhole``. The texts
are beside this file: those of ``nexmark-flink``, with the constants of Headrace's suite. Windows
are Flink's own: each is emitted once, when the watermark has passed it. What Flink refuses is
reported with its reason.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "flink_nexmark"
SIDE_ROWS = 100


def main() -> None:
    options = _options()
    # Importing Flink is a part of starting it.
    from pyflink.table import EnvironmentSettings, TableEnvironment  # noqa: PLC0415

    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = environment.get_config()
    settings.set("parallelism.default", str(options.threads))
    settings.set("table.local-time-zone", "UTC")
    side = options.directory / "side_input.csv"
    side.write_text("".join(f"{key},value {key}\n" for key in range(SIDE_ROWS)), encoding="utf-8")
    paths = {name: getattr(options, name) for name in ("bids", "auctions", "persons")}
    sources = (HERE / "sources.sql").read_text(encoding="utf-8").format(**paths, side=side)
    for statement in filter(str.strip, sources.split(";")):
        environment.execute_sql(statement)
    for file in sorted(HERE.glob("q*.sql")):
        if not options.queries or file.stem in options.queries:
            found = _measured(environment, file.read_text(encoding="utf-8"), options.runs)
            print(json.dumps({"query": file.stem, **found}), flush=True)


def _measured(environment: Any, query: str, runs: int) -> dict[str, Any]:
    from pyflink.table import TableDescriptor  # noqa: PLC0415

    seconds = []
    try:
        for _ in range(runs):
            begun = time.perf_counter()
            # A descriptor without a schema takes on that of the query.
            sink = TableDescriptor.for_connector("blackhole").build()
            environment.sql_query(query).execute_insert(sink).wait()
            seconds.append(round(time.perf_counter() - begun, 3))
    except Exception as error:  # noqa: BLE001  (whatever Py4J makes of it)
        lines = [line.strip() for line in str(error).splitlines() if "Exception:" in line]
        return {"failed": (lines or [str(error)])[-1][:300]}
    return {"run_seconds": seconds}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bids", type=Path)
    parser.add_argument("auctions", type=Path)
    parser.add_argument("persons", type=Path)
    parser.add_argument("directory", type=Path, help="where the side input may be written")
    parser.add_argument("queries", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
