"""``make benchmark``: run the benchmarks, print their tables, and keep the results if asked.

Every part runs in a process of its own, so that none finds the JVM of another warm or its memory
in use.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from benchmarks import (
    commands,
    concurrency,
    corrections,
    freshness,
    nexmark,
    operators,
    payledger,
    queries,
    refreshes,
    replays,
    report,
    state_cost,
    steady,
    streams,
    throughput,
)
from benchmarks import epochs as small_epochs
from benchmarks.peers import run as peers

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
DATA = HERE / "data"
RESULTS = HERE / "results"
_WIDTH = 170
PARTS = (
    "throughput",
    "freshness",
    "state",
    "peers",
    "queries",
    "concurrency",
    "kafka",
    "server",
    "push",
    "payledger",
    "refresh",
    "replay",
    "correct",
    "sinks",
    "operators",
    "epochs",
    "steady",
    "disk",
    "streams",
    "commands",
    "tpch",
    "cluster",
)
_QUERY_RUNS = 3


@click.command()
@click.option("--events", default=2_000_000, show_default=True, help="Events to generate.")
@click.option("--runs", default=10, show_default=True, help="Runs of a query; the first is cold.")
@click.option("--samples", default=200, show_default=True, help="Inserts per size.")
@click.option("--epochs", default=60, show_default=True, help="Epochs per size of state.")
@click.option("--partitions", default=min(8, os.cpu_count() or 1), show_default="one per core")
@click.option("--groups", "sizes", multiple=True, type=int, default=state_cost.GROUPS)
@click.option("--seconds", default=10.0, show_default=True, help="Seconds per part of concurrency.")
@click.option("--keys", default=1_000_000, show_default=True, help="Keys read by many clients.")
@click.option("--fill", "filled", default=5_000_000, show_default=True, help="Rows of the fill.")
@click.option(
    "--readers", multiple=True, type=int, default=(0,), help="Reader processes of the server."
)
@click.option("--only", "parts", multiple=True, type=click.Choice(PARTS), default=PARTS[:3])
@click.option(
    "--beside",
    "checkout",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Another checkout, whose operators are measured in turns with these.",
)
@click.option("--scale", default=0.1, show_default=True, help="The scale factor of TPC-H.")
@click.option(
    "--query", "chosen", multiple=True, metavar="Q01", help="A query of TPC-H, in place of all."
)
@click.option("--rate", default=30.0, show_default=True, help="Events a second of steady.")
@click.option("--landings", default=29_000, show_default=True, help="Of streams and disk.")
@click.option("--quick", is_flag=True, help="Fewer views and samples of epochs and tpch.")
@click.option("--save", metavar="NAME", help="Keep the results in benchmarks/results/NAME.json.")
def main(  # noqa: PLR0917 (options, given by name)
    events: int,
    runs: int,
    samples: int,
    epochs: int,
    partitions: int,
    sizes: tuple[int, ...],
    seconds: float,
    keys: int,
    filled: int,
    readers: tuple[int, ...],
    parts: tuple[str, ...],
    checkout: Path | None,
    scale: float,
    chosen: tuple[str, ...],
    rate: float,
    landings: int,
    save: str | None,
    *,
    quick: bool,
) -> None:
    """Measure Headrace; with --only peers, other systems on the same files.

    With --only queries, Nexmark's 23 queries, and Flink beside them. With --only concurrency, many
    clients at once. With --only kafka, topics of a broker that is started for it. With --only
    server, views read over HTTP. With --only push, changes that reach subscribers. With --only
    payledger, balances whose policy changes in the past, beside a rebuild. With --only refresh,
    fifty views that are refreshed hourly, beside one. With --only replay, slices of a view that
    are replayed, beside a rebuild. With --only correct, single events of a stream that are
    corrected, until its views can be read. With --only sinks, each target that a server can be had
    of. With --only operators, a step of each operator, with --beside as well that of another
    checkout. With --only epochs, small epochs in this process beside the same as Spark jobs. With
    --only tpch, TPC-H's queries as views, 1,000 rows changed, beside Spark batch of the same. With
    --only steady, what an event of a small steady stream costs, and what it leaves on disk. With
    --only disk, what many small landings leave there, with views over them. With --only streams,
    reads of a stream of landings of one event, beside the same as Spark jobs. With
    --only commands, what commands cost that run once. With --only cluster, fills and epochs on a
    cluster of Spark, with the requests to the store and their price.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    DATA.mkdir(exist_ok=True)
    results: dict[str, Any] = {"setting": _setting(events, partitions)}
    if "throughput" in parts or "peers" in parts:
        console.print(f"files of {events:,} events in {os.path.relpath(DATA)}")
        nexmark.dataset(DATA, events)
    if "throughput" in parts:
        results["throughput"] = [
            _apart(partial(throughput.measure, lean=lean), DATA, events, runs, partitions, w.name)
            for w in throughput.WORKLOADS
            for lean in (False, True)
        ]
        console.print(report.throughput(results["throughput"]))
    if "freshness" in parts:
        results["freshness"] = _apart(freshness.measure, DATA, samples, partitions)
        console.print(*report.freshness(results["freshness"]))
    if "state" in parts:
        results["state"] = [
            _apart(state_cost.measure, DATA, groups, epochs, partitions) for groups in sizes
        ]
        console.print(report.state(results["state"]))
    if "throughput" in parts or "state" in parts:
        console.print(report.memory(results))
    if "peers" in parts:
        results["peers"] = list(peers.measure(DATA, events, partitions, console.print))
        console.print(report.peers(results["peers"]))
    if "queries" in parts:
        few = min(runs, _QUERY_RUNS)
        found = _apart(queries.measure, DATA, events, few, partitions)
        data = nexmark.dataset(DATA, events)
        beside = peers.measure_queries(DATA, data, partitions, few, console.print)
        results["queries"] = {"headrace": found, "flink": beside}
        console.print(report.queries(found, beside))
    if "concurrency" in parts:
        found = _apart(concurrency.measure, DATA, seconds, keys, filled, partitions)
        results["concurrency"] = found
        for table in report.concurrency(found):
            console.print(table)
    if "kafka" in parts:
        from benchmarks import kafka  # noqa: PLC0415 (it needs clients and servers of its own)

        results["kafka"] = _apart(kafka.measure, DATA, events, seconds, partitions)
        for table in report.kafka(results["kafka"]):
            console.print(table)
    if "sinks" in parts:
        from benchmarks import sinks  # noqa: PLC0415 (it needs clients and servers of its own)

        results["sinks"] = _apart(sinks.measure, DATA, min(events, sinks.MOST_ROWS), partitions)
        console.print(report.sinks(results["sinks"]))
    results |= _of_steps(
        parts, console, checkout, (scale, chosen), steady.Size(rate, seconds), quick=quick
    )
    results |= _of_repair(parts, console, events, partitions, landings)
    results |= _of_server(parts, console, seconds, keys, partitions, readers)
    if save:
        RESULTS.mkdir(exist_ok=True)
        kept = RESULTS / f"{save}.json"
        kept.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
        console.print(f"kept in {os.path.relpath(kept)}")


def _of_steps(
    parts: tuple[str, ...],
    console: Console,
    checkout: Path | None,
    of_tpch: tuple[float, tuple[str, ...]],
    of_steady: steady.Size,
    *,
    quick: bool,
) -> dict[str, Any]:
    """Run the parts about steps: of operators, without a database, and of small epochs.

    ``of_tpch`` are the scale factor and the queries of TPC-H.
    """
    found: dict[str, Any] = {}

    def shown(name: str, scenario: dict[str, Any]) -> None:
        console.rule(f"{name}: {scenario['taken_s']} s")
        for table in report.epochs(scenario):
            console.print(table)

    if "operators" in parts:
        found["operators"] = operators.measure(checkout)
        console.print(report.operators(found["operators"]))
    if "epochs" in parts:
        size = small_epochs.QUICK if quick else small_epochs.FULL
        found["epochs"] = small_epochs.measure(_apart, DATA, size, shown)
    if "steady" in parts:
        found["steady"] = _apart(steady.measure, DATA, of_steady)
        for table in report.steady(found["steady"]):
            console.print(table)
    if "commands" in parts:
        found["commands"] = _apart(commands.measure, DATA)
        console.print(report.commands(found["commands"]))
    if "tpch" in parts:
        from benchmarks import tpch  # noqa: PLC0415 (it needs the suites of the tests)

        turns = tpch.QUICK if quick else tpch.FULL
        found["tpch"] = _apart(tpch.measure, DATA, *of_tpch, turns)
        for table in report.tpch(found["tpch"]):
            console.print(table)
    if "cluster" in parts:
        from benchmarks import cluster  # noqa: PLC0415 (it needs the servers of the tests)

        found["cluster"] = [_apart(cluster.measure, DATA, each) for each in cluster.WORKERS]
        for table in report.cluster(found["cluster"]):
            console.print(table)
    return found


def _of_repair(
    parts: tuple[str, ...], console: Console, events: int, partitions: int, landings: int
) -> dict[str, Any]:
    """Run the parts about long logs: how they are read, and how views catch up with them."""
    found: dict[str, Any] = {}
    if "disk" in parts:
        found["disk"] = _apart(steady.landed, DATA, landings)
        for table in report.disk(found["disk"]):
            console.print(table)
    if "streams" in parts:
        found["streams"] = _apart(streams.measure, DATA, landings)
        for table in report.streams(found["streams"]):
            console.print(table)
    if "payledger" in parts:
        found["payledger"] = _apart(payledger.measure, DATA, events, partitions)
        console.print(report.payledger(found["payledger"]))
    if "replay" in parts:
        rows = min(events, replays.MOST_ROWS)
        found["replay"] = _apart(replays.measure, DATA, rows, partitions)
        console.print(report.replays(found["replay"]))
    if "correct" in parts:
        sizes = ((corrections.ONE_BY_ONE, 1), (corrections.MOST_ROWS, corrections.AT_ONCE))
        found["correct"] = [
            each
            for rows, at_once in sizes
            for each in _apart(corrections.measure, DATA, min(events, rows), at_once, partitions)
        ]
        console.print(report.corrections(found["correct"]))
    if "refresh" in parts:
        rows = min(events, refreshes.MOST_ROWS)
        found["refresh"] = [
            _apart(refreshes.measure, DATA, rows, views, partitions)
            for views in (1, refreshes.VIEWS)
        ]
        console.print(report.refreshes(found["refresh"]))
    return found


def _of_server(
    parts: tuple[str, ...],
    console: Console,
    seconds: float,
    keys: int,
    partitions: int,
    readers: tuple[int, ...],
) -> dict[str, Any]:
    """Run the parts that need the extra of the server."""
    found: dict[str, Any] = {}
    if "server" in parts:
        from benchmarks import serving  # noqa: PLC0415 (it needs the extra)

        found["server"] = _apart(serving.measure, DATA, seconds, keys, partitions, readers)
        for table in report.serving(found["server"]):
            console.print(table)
    if "push" in parts:
        from benchmarks import pushing  # noqa: PLC0415 (it needs the extra)

        found["push"] = _apart(pushing.measure, DATA, seconds, partitions)
        console.print(report.push(found["push"]))
    return found


def _apart(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, *arguments).result()


def _setting(events: int, partitions: int) -> dict[str, Any]:
    return {
        "events": events,
        "partitions": partitions,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "pyarrow": version("pyarrow"),
    }


if __name__ == "__main__":
    main()
