"""Results as tables to print."""

from __future__ import annotations

from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

from rich.table import Table

from benchmarks import prices
from benchmarks.epoch_costs import place_rank
from benchmarks.operators import COUNTERS
from headrace.lifecycle.states.system_relations import ACTIVITIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MEGABYTE = 1 << 20
_WAYS = ("narrow", "batch", "job")
_COUNTERS = ("epochs", "jobs/epoch", "rows in", "rows read/change", "MB written/epoch")


def throughput(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per workload."""
    table = _table(
        "From a JSON file to a readable view",
        [
            "workload",
            "rows",
            "MB",
            "rows/s warm",
            "rows/s with start-up",
            "cold s",
            "warm s",
            "CPU s warm",
            *_COUNTERS,
        ],
    )
    for found in results:
        last = found["runs"][-1]
        table.add_row(
            found["workload"],
            f"{found['rows']:,}",
            f"{found['megabytes']:,}",
            f"{found['warm_rows_per_second']:,}",
            f"{found['rows_per_second_with_start_up']:,}",
            f"{found['cold_seconds']:.2f}",
            f"{found['warm_seconds']:.2f}",
            f"{sum(last['processor_seconds'].values()):.2f}",
            *_counters(last["counters"]),
        )
    return table


def kafka(results: dict[str, Any]) -> list[Table]:
    """Return rows per second by source, and freshness by rate."""
    speed = _table(
        "From a source to a readable view", ["source", "rows", "rows/s", "of the file's"]
    )
    per_second = results["rows_per_second"]
    for source, found in per_second.items():
        share = f"{found / per_second['file']:.0%}"
        speed.add_row(source, f"{results['rows']:,}", f"{found:,}", share)
    fresh = _table(
        "From producing to the log, and to a read that sees it, milliseconds",
        ["events/s", "samples", "log p50", "log p99", "read p50", "read p99", "most"],
    )
    for found in results["freshness"]:
        names = ("p50_ms", "p99_ms")
        milliseconds = [found["landed"][name] for name in names]
        milliseconds += [found[name] for name in (*names, "most_ms")]
        texts = (f"{each:.1f}" for each in milliseconds)
        fresh.add_row(f"{found['rate']:,}", f"{found['samples']:,}", *texts)
    return [speed, fresh]


def sinks(results: Sequence[dict[str, Any]]) -> Table:
    """Return rows per second into each target, and how late the change of a row is there."""
    table = _table(
        "From a view to a target; milliseconds from the commit of an epoch of one row",
        ["target", "rows", "first rows/s", "changed rows/s", "p50", "p99", "most"],
    )
    for found in results:
        if "missing" in found:
            table.add_row(found["target"], found["missing"])
            continue
        speeds = (f"{found[name]:,}" for name in ("rows", "rows_per_second", "changes_per_second"))
        milliseconds = (f"{found[name]:.1f}" for name in ("p50_ms", "p99_ms", "most_ms"))
        table.add_row(found["target"], *speeds, *milliseconds)
    return table


def operators(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per operator and size of change, with the time of another checkout beside."""
    beside = "beside" in results[0]
    table = _table(
        "A step over 100,000 stored rows: microseconds of the processor, and work",
        [
            "operator",
            "changed rows",
            *(["beside", "here", "ratio"] if beside else ["here"]),
            "calls",
            "consolidations",
            "sorts",
            "kernels",
            "rows read",
        ],
    )
    for found in results:
        times = [f"{found['micros']:,.0f}"]
        if beside:
            other = found["beside"]["micros"]
            times = [f"{other:,.0f}", *times, f"{found['micros'] / other:.2f}"]
        table.add_row(
            found["operator"],
            f"{found['rows']:,}",
            *times,
            *(f"{found[name]:,}" for name in COUNTERS),
        )
    return table


def epochs(found: dict[str, Any]) -> Iterator[Table]:
    """Yield the tables of a scenario: ratios, counters, where time goes, and opening."""
    ratios = found.get("ratios", ())
    if ratios:
        table = _table(
            "Ratios of the middle, the least and the processor time; milliseconds",
            [
                "work",
                "to the same",
                "aim",
                "middle",
                "least",
                "processor",
                "ms",
                "to ms",
                "CPU ms",
                "to CPU ms",
            ],
        )
        for row in ratios:
            of, to = row["of"], row["to"]
            table.add_row(
                row["work"],
                row["than"],
                f"{row['aim']:g}" if row["aim"] else "",
                *(_ratio(of, to, name) for name in ("p50_ms", "least_ms", "processor_all_ms")),
                *(f"{each['p50_ms']:,.1f}" for each in (of, to)),
                *(_of_parts(each.get("processor_ms")) for each in (of, to)),
            )
        table.caption = "CPU: of the driver's Python + the JVM + workers"
        yield table
        yield _of_counters(ratios)
    if found.get("profiles"):
        yield _of_profiles(found["profiles"])
    if "opens" in found:
        table = _table(
            "Opening a database in a fresh process, to starting Spark alone; seconds",
            ["views", "connected", "a row by key", "an epoch", "ratios"],
        )
        names = ("connected_s", "read_s", "epoch_s")
        alone = found["opens"][0]["connected_s"]
        for row in found["opens"]:
            ratios_of_row = ", ".join(f"{row[name] / alone:.2f}" for name in names)
            seconds = (f"{row[name]:.2f}" for name in names)
            table.add_row(str(row["views"] or "Spark alone"), *seconds, ratios_of_row)
        yield table


def _of_counters(ratios: Sequence[dict[str, Any]]) -> Table:
    names = ("jobs", "operators", "rows_in", "rows_out", "rows_read", "bytes_written")
    names = (*names, "files", "syncs", "crossings", "py4j")
    table = _table("Per sample", ["work", "", *(name.replace("_", " ") for name in names)])
    for row in ratios:
        sides = [("", row["of"])]
        if row["than"] == "as jobs":
            sides.append((row["than"], row["to"]))
        for side, counters in sides:
            if "jobs" in counters and (side or row["than"] == "as jobs"):
                table.add_row(row["work"], side, *(f"{counters[name]:,.1f}" for name in names))
    return table


def _of_profiles(profiles: dict[str, list[dict[str, Any]]]) -> Table:
    table = _table(
        "Where the time of a narrow epoch goes: milliseconds, of which of the processor (calls)",
        ["", *profiles],
    )
    by_place: dict[str, dict[str, str]] = {}
    for work, rows in profiles.items():
        for row in rows:
            cell = f"{row['wall_ms']:.1f}, {row['processor_ms']:.1f} ({row['calls']:g})"
            by_place.setdefault(row["place"], {})[work] = cell
    for place in sorted(by_place, key=place_rank):
        table.add_row(place, *(by_place[place].get(work, "") for work in profiles))
    totals = [
        f"{sum(r['wall_ms'] for r in rows):.1f}, {sum(r['processor_ms'] for r in rows):.1f}"
        for rows in profiles.values()
    ]
    table.add_row("all", *totals)
    return table


def _ratio(of: dict[str, Any], to: dict[str, Any], name: str) -> str:
    return f"{of[name] / to[name]:.2f}" if of.get(name) and to.get(name) else ""


def _of_parts(processor: dict[str, float] | None) -> str:
    return " + ".join(f"{value:,.0f}" for value in processor.values()) if processor else ""


def commands(found: list[dict[str, Any]]) -> Table:
    """Return a table of what commands cost, cold."""
    table = _table(
        "Commands that run once: seconds of processor, with all processes",
        ["command", "processor", "taken", "planned by Spark"],
    )
    for each in found:
        by_spark = each.get("by_spark_s")
        table.add_row(
            each["command"],
            f"{each['processor_s']:.2f}",
            f"{each['taken_s']:.2f}",
            "" if by_spark is None else f"{by_spark:.2f}",
        )
    return table


def steady(found: dict[str, Any]) -> Iterator[Table]:
    """Return tables of processor time, of counters, and of what is on disk."""
    events, used = found["events"], found["per_event_ms"]
    table = _table(
        f"{events:,} events, {found['rate']:g} a second: processor time of an event by place",
        ["place", "ms", "at rest, % of a core"],
    )
    idle = found["idle_percent"]
    for place in [*used, *(each for each in idle if each not in used)]:
        table.add_row(place, f"{used.get(place, 0):.3f}", f"{idle.get(place, 0):.3f}")
    table.add_row("all", f"{sum(used.values()):.3f}", f"{sum(idle.values()):.3f}", style="bold")
    yield table
    age, counts = found["age"], found["counts"]
    table = _table("Counters of an event", ["counter", "of an event"])
    for name, count in sorted(counts.items()):
        table.add_row(name, f"{count:,.2f}")
    table.add_row("age p50, p99 (ms)", f"{age['p50_ms']:.0f}, {age['p99_ms']:.0f}")
    table.add_row("statements at rest", str(found["idle_statements"]))
    yield table
    yield _on_disk(found)
    if found["places"]:
        yield _of_profiles({"an epoch of a few events": found["places"]})


def disk(found: dict[str, Any]) -> Iterator[Table]:
    """Return a table of what many small landings leave on disk."""
    table = _table("Many small landings", ["events", "landings", "seconds", "epochs", "MB at rest"])
    size = sum(each["bytes"] for each in found["rested"].values())
    counts = (f"{found[name]:,.0f}" for name in ("events", "landings", "landed_s", "epochs"))
    table.add_row(*counts, f"{size / 1e6:.1f}")
    yield table
    yield _on_disk(found)


def _on_disk(found: dict[str, Any]) -> Table:
    table = _table(
        f"Bytes on disk for each of {found['input_bytes']:,} bytes of JSON;"
        f" {found['live']['runs']} live runs of {found['live']['bytes']:,} bytes",
        ["part", "files", "at once", "files at rest", "at rest"],
    )
    every = [*found["made"], *(each for each in found["rested"] if each not in found["made"])]
    for part in every:
        table.add_row(part, *_of_disk(found, [part]))
    table.add_row("all", *_of_disk(found, every), style="bold")
    return table


def _of_disk(found: dict[str, Any], parts: Sequence[str]) -> tuple[str, ...]:
    cells: list[str] = []
    for moment in ("made", "rested"):
        each = [found[moment][part] for part in parts if part in found[moment]]
        ratio = sum(part["bytes"] for part in each) / found["input_bytes"]
        cells += [f"{sum(part['files'] for part in each):,}", f"{ratio:.2f}"]
    return tuple(cells)


def streams(found: dict[str, Any]) -> Iterator[Table]:
    """Yield tables of reads of a stream: beside the same as jobs of Spark, and once merged."""
    rates = f"{found['rates'][0]:,.0f} a second at first and {found['rates'][-1]:,.0f} at last"
    landed = f"{found['landings']:,} landings of one event, {rates}"
    yield _reads(landed, found["queries"])
    merged = f"after {found['replaced']:,} segments were merged in {found['merged_s']:.0f} s"
    yield _reads(merged, found["after"])


def _reads(title: str, reads: Sequence[dict[str, Any]]) -> Table:
    table = _table(
        title, ["read", "cold (ms)", "warm (ms)", "as a job (ms)", "segments opened", "bytes"]
    )
    for each in reads:
        job = "-" if each["job_ms"] is None else f"{each['job_ms']:,.0f}"
        times = (f"{each['cold_ms']:,.0f}", f"{each['warm_ms']:,.1f}", job)
        table.add_row(each["query"], *times, f"{each['segments']:,}", f"{each['bytes']:,}")
    return table


def tpch(results: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Yield the tables of TPC-H's queries: how batch compares, and where the time goes."""
    names = ("p50_ms", "least_ms", "processor_all_ms")
    table = _table(
        "Spark batch to a commit of 1,000 changed rows, each view alone: middle, least, processor",
        ["query", "rows", "middle", "least", "processor", "ms", "batch ms", "as jobs ms", "width"],
    )
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for found in results:
        batch, own = found.get("batch"), found["narrow"]
        if batch is not None:
            for name in names:
                ratios[name].append(batch[name] / own[name])
        of_batch = [f"{each[-1]:.1f}" if batch else "" for each in ratios.values()]
        times = [f"{found[way]['p50_ms']:,.0f}" if way in found else "" for way in _WAYS]
        rows = f"{found['rows']:,}" if "rows" in found else ""
        table.add_row(found["query"], rows, *of_batch, *times, ", ".join(found["widths"]))
    if ratios["p50_ms"]:
        means = (f"{geometric_mean(each):.1f}" for each in ratios.values())
        table.add_row("geometric mean", "", *means)
    yield table
    counters = ("jobs", "operators", "rows_in", "rows_out", "rows_read", "bytes_written")
    table = _table(
        "Per commit, on the average",
        ["query", *(name.replace("_", " ") for name in counters), "fans out", "not here"],
    )
    for found in results:
        cells = [f"{found[name]:,.1f}".removesuffix(".0") for name in counters]
        table.add_row(found["query"], *cells, found["fans_out"], "; ".join(found.get("leaves", ())))
    yield table
    shown = [name for name in ACTIVITIES if any(found[name] for found in results)]
    table = _table(
        "Where the time of an epoch goes, and appending before it; milliseconds",
        ["query", "append", *(name.removesuffix("_ms") for name in shown)],
    )
    for found in results:
        times = [f"{found[name]:,.1f}" for name in ("append_ms", *shown)]
        table.add_row(found["query"], *times)
    yield table


def beside_wide_steps(results: Sequence[dict[str, Any]]) -> Table:
    """Return how late a row is seen, alone and while steps of other views are wide."""
    table = _table(
        "From an insert of one row to a read that sees it, milliseconds",
        ["views", "samples", "p50", "p99", "most", "wide of the last epochs"],
    )
    for found in results:
        milliseconds = (f"{found[name]:.1f}" for name in ("p50_ms", "p99_ms", "most_ms"))
        samples = str(found["samples"])
        table.add_row(found["views"], samples, *milliseconds, found["wide_of_last_epochs"])
    return table


def freshness(results: dict[str, Any]) -> list[Table]:
    """Return a row per size of insert, and one for each way in which others are in the way."""
    table = _table(
        "From an insert to a read that sees it, milliseconds",
        [
            "rows",
            "samples",
            "p50",
            "p99",
            "most",
            "insert p50",
            "read p50",
            "epoch p50",
            *_COUNTERS,
        ],
    )
    for found in results["sizes"]:
        table.add_row(
            f"{found['rows']:,}",
            str(found["samples"]),
            *(
                f"{found[name]:.1f}"
                for name in ("p50_ms", "p99_ms", "most_ms", "insert_p50_ms", "read_p50_ms")
            ),
            f"{found['epoch_p50_ms']:.1f}",
            *_counters(found["counters"]),
        )
    return [table, beside_wide_steps(results["beside"])]


def state(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per size of state, with the ratio to the smallest."""
    table = _table(
        "An epoch of 1,000 changes by the size of the state, milliseconds",
        ["groups", "epoch p50", "ratio", "epoch p99", "insert to commit p50", "load s", *_COUNTERS],
    )
    least = results[0]["epoch"]["p50_ms"]
    for found in results:
        table.add_row(
            f"{found['groups']:,}",
            f"{found['epoch']['p50_ms']:.1f}",
            f"{found['epoch']['p50_ms'] / least:.2f}",
            f"{found['epoch']['p99_ms']:.1f}",
            f"{found['wall']['p50_ms']:.1f}",
            f"{found['load_seconds']:.0f}",
            *_counters(found["counters"]),
        )
    return table


def payledger(found: dict[str, Any]) -> Table:
    """Return a row per part, with the ratio of the rebuild's time to it."""
    table = _table(
        f"PayLedger: {found['events']:,} events, {found['balances']:,} balances of"
        f" {found['merchants']:,} merchants; the policy change moves {found['changed']:,}",
        [
            "",
            "seconds",
            "rebuild is",
            "processor s",
            "rebuild is",
            "rows read",
            "rows in",
            "rows out",
        ],
    )
    table.caption = "; ".join(found["said"])
    whole = found["parts"]["rebuild"]
    for name, part in found["parts"].items():
        counters = part["counters"]
        table.add_row(
            name,
            f"{part['seconds']:.1f}",
            f"{whole['seconds'] / part['seconds']:.1f} x",
            f"{part['processor']:.2f}",
            f"{whole['processor'] / part['processor']:.1f} x",
            *(f"{counters[each]:,}" for each in ("rows_read", "rows_in", "rows_out")),
        )
    return table


def refreshes(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per number of views: what refreshing them once took."""
    names = ("jobs", "rows_scanned", "bytes_written")
    table = _table(
        f"Refreshing views on one table after {results[0]['rows']:,} changes",
        ["views", "seconds", *(name.replace("_", " ") for name in names), "peak memory, MB"],
    )
    for found in results:
        table.add_row(
            f"{found['views']}",
            f"{found['seconds']:.1f}",
            *(f"{found['counters'][name]:,}" for name in names),
            _megabytes(found["memory"]["all"]["proportional"]),
        )
    return table


def replays(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per slice: what replaying it took, beside all of the view."""
    table = _table("Replaying slices of views", ["slice", "seconds", "processor s", "read"])
    for found in results:
        spent = (f"{found[each]:.2f}" for each in ("seconds", "processor"))
        table.add_row(found["slice"], *spent, found["done"])
    return table


def corrections(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per correction of one event: the time until all views show it, and its work."""
    columns = ["events", "at once", "correction", "seconds", "segments", "rows read", "jobs"]
    table = _table("One event corrected, until its views are read", columns)
    for found in results:
        sizes = (f"{found[each]:,}" for each in ("rows", "at_once"))
        work = (f"{found[each]:,}" for each in ("segments", "rows_read", "jobs"))
        table.add_row(*sizes, found["correction"], f"{found['seconds']:.2f}", *work)
    return table


def memory(results: dict[str, Any]) -> Table:
    """Return a row per run: peaks by kind of process, resident and proportional."""
    table = _table(
        "Peak memory, MB resident (proportional)", ("run", "driver", "JVM", "workers", "all")
    )
    runs = [(r["workload"], r["memory"]) for r in results.get("throughput", ())]
    runs += [(f"{r['groups']:,} groups", r["memory"]) for r in results.get("state", ())]
    for name, found in runs:
        table.add_row(
            name,
            *(
                f"{_megabytes(found[part]['resident'])} ({_megabytes(found[part]['proportional'])})"
                for part in ("driver", "jvm", "workers", "all")
            ),
        )
    return table


def peers(results: Sequence[dict[str, Any]]) -> Table:
    """Return a row per peer, variant and query."""
    table = _table(
        "Other systems on the same files",
        [
            "system",
            "workload",
            "rows/s warm",
            "rows/s with start-up",
            "start-up s",
            "runs s",
            "peak MB",
            "answer",
        ],
    )
    for found in results:
        if "failed" in found:
            table.add_row(found["system"], found["workload"], *[""] * 5, found["failed"])
            continue
        table.add_row(
            found["system"],
            found["workload"],
            f"{found['warm_rows_per_second']:,}",
            f"{found['rows_per_second_with_start_up']:,}",
            f"{found['start_up_seconds']:.1f}",
            ", ".join(f"{seconds:.1f}" for seconds in found["run_seconds"]),
            _megabytes(found["peak_proportional"]),
            _verdict(found),
        )
    return table


def queries(results: Sequence[dict[str, Any]], flink: dict[str, dict[str, Any]]) -> Table:
    """Return a row per query, Flink's figure and the ratio to it beside; at the end, the means."""
    table = _table(
        "Nexmark: from JSON files to a readable view, rows per second",
        [
            "query",
            "rows",
            "answer rows",
            "Headrace",
            "Flink SQL, heap",
            "ratio",
            "runs s",
            "CPU s",
            *_COUNTERS,
        ],
    )
    ratios = []
    for found in results:
        last, peer = found["runs"][-1], flink.get(found["query"], {})
        other, ratio = peer.get("failed", "")[:60], ""
        if "run_seconds" in peer:
            rate = found["rows"] / peer["run_seconds"][-1]
            ratios.append(found["rows_per_second"] / rate)
            other, ratio = f"{rate:,.0f}", f"{ratios[-1]:.2f}"
        table.add_row(
            found["query"],
            f"{found['rows']:,}",
            f"{last['answer_rows']:,}",
            f"{found['rows_per_second']:,}",
            other,
            ratio,
            ", ".join(f"{run['seconds']:.1f}" for run in found["runs"]),
            f"{last['processor_seconds']:.1f}",
            *_counters(last["counters"]),
        )
    own = geometric_mean(found["rows_per_second"] for found in results)
    mean = f"{geometric_mean(ratios):.2f}" if ratios else ""
    table.add_row("geometric mean", "", "", f"{own:,.0f}", "", mean)
    return table


def concurrency(found: dict[str, Any]) -> tuple[Table, ...]:
    """Return a table for writers, one for readers, one for single lookups and one for the fill."""
    tables = []
    for title, rows in (
        ("Single rows inserted while epochs run", found["writers"]),
        ("Rows read by key while events arrive", found["readers"]["clients"]),
    ):
        table = _table(title, ["clients", "per second", "p50 ms", "p99 ms", "most ms", "epochs"])
        for row in rows:
            figures = (f"{row[name]:.1f}" for name in ("p50_ms", "p99_ms", "most_ms"))
            rate = f"{row['per_second']:,}"
            table.add_row(row["clients"], rate, *figures, str(row["epochs"]))
        tables.append(table)
    lookups = _table("One reader, an idle database", ["query", "rows", "p50 ms", "p99 ms"])
    for row in found["readers"]["lookups"]:
        figures = (f"{row[name]:.1f}" for name in ("p50_ms", "p99_ms"))
        lookups.add_row(row["query"], f"{row['rows']:,}", *figures)
    fill = found["fill"]
    beside = _table(
        "A fill, and the epochs of another view beside it",
        ["rows", "seconds", "epochs", "p50 ms before", "p50 ms meanwhile"],
    )
    meanwhile = fill["during_p50_ms"]
    beside.add_row(
        f"{fill['rows']:,}",
        f"{fill['seconds']:.1f}",
        str(fill["epochs"]),
        f"{fill['quiet_p50_ms']:.0f}",
        "none" if meanwhile is None else f"{meanwhile:.0f}",
    )
    return (*tables, lookups, beside)


def serving(found: dict[str, Any]) -> tuple[Table, ...]:
    """Return a table of lookups by key, and one of scans."""
    lookups = _table(
        f"Rows read by key over HTTP, of {found['keys']:,}",
        ["readers", "clients", "epochs meanwhile", "per second", "p50 ms", "p99 ms", "most ms"],
    )
    for row in found["lookups"]:
        figures = (f"{row[name]:.2f}" for name in ("p50_ms", "p99_ms", "most_ms"))
        rate = f"{row['per_second']:,}"
        counts = (str(row[name]) for name in ("readers", "clients", "epochs"))
        lookups.add_row(*counts, rate, *figures)
    scans = _table(
        "Rows read by condition and order over HTTP, one client",
        ["readers", "path", "epochs meanwhile", "p50 ms", "p99 ms"],
    )
    for row in found["scans"]:
        figures = (f"{row[name]:.2f}" for name in ("p50_ms", "p99_ms"))
        scans.add_row(str(row["readers"]), row["path"], "yes" if row["fed"] else "none", *figures)
    return lookups, scans


def push(found: Sequence[dict[str, Any]]) -> Table:
    """Return a row for each crowd of subscribers."""
    table = _table(
        "From commit to a subscriber, and epochs, milliseconds",
        ["idle subscribers", "slow ones", "push p50", "push p99", "epoch p50", "ratio"],
    )
    alone = found[0]["epoch"]["p50_ms"]
    for row in found:
        figures = (f"{row['push'][name]:.1f}" for name in ("p50_ms", "p99_ms"))
        epoch = row["epoch"]["p50_ms"]
        crowd = f"{row['idle']:,}", str(row["slow"])
        table.add_row(*crowd, *figures, f"{epoch:.1f}", f"{epoch / alone:.2f}")
    return table


def cluster(found: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """Yield throughput by the number of workers, and requests and their price by stage."""
    names = [f"{run['workers'] or 'no'} worker{'s' * (run['workers'] > 1)}" for run in found]
    table = _table(
        "Rows per second by workers of one core",
        ["", "rows", *names, *(f"{name}: {names[0]}" for name in names[1:]), "two: one"],
    )
    stages = list(zip(*(run["stages"] for run in found), strict=True))
    for each in stages:
        speeds = [run["rows_per_second"] for run in each]
        ratios = [speed / speeds[0] for speed in speeds[1:]] + [speeds[-1] / speeds[-2]]
        shown = (f"{speed:,}" for speed in speeds)
        own = each[0]["stage"], f"{each[0]['rows']:,}"
        table.add_row(*own, *shown, *(f"{ratio:.2f}" for ratio in ratios))
    yield table
    table = _table(
        "Requests to the store and their price, each time",
        [
            *("", "workers", "PUT", "GET", "LIST", "KB put", "KB got"),
            *("USD per million", "USD a month, one a second"),
        ],
    )
    for each in stages:
        for name, run in zip(names, each, strict=True):
            counts = (f"{run[kind]:g}" for kind in ("PUT", "GET", "LIST"))
            moved = (f"{run[kind] / 1000:,.1f}" for kind in ("bytes_put", "bytes_got"))
            usd = run["usd"]
            costs = f"{usd * 1e6:,.2f}", f"{usd * prices.MONTH_SECONDS:,.2f}"
            table.add_row(run["stage"], name, *counts, *moved, *costs)
    yield table
    table = _table("What is stored in the end", ["", "MB", "USD a month"])
    for name, run in zip(names, found, strict=True):
        size = run["stored_bytes"]
        table.add_row(name, _megabytes(size), f"{size / 1e9 * prices.GIGABYTE_MONTH:.4f}")
    yield table


def _verdict(found: dict[str, Any]) -> str:
    if not found["answer"]:
        return "not checked"
    return "right" if found["answer_is_right"] else "WRONG"


def _counters(counters: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(counters["epochs"]),
        f"{counters['jobs_per_epoch']:g}",
        f"{counters['rows_in']:,}",
        f"{counters['rows_read_per_change']:g}",
        f"{counters['bytes_written_per_epoch'] / _MEGABYTE:.2f}",
    )


def _megabytes(count: int) -> str:
    return f"{count / _MEGABYTE:,.0f}"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right")
    return table
