"""The peers' environments, made once, and their runs: each query in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.answers import Answers, answers
from benchmarks.memory import Sampler
from benchmarks.nexmark import Dataset, dataset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".envs"
_INSTALL_SECONDS = 1800
_RUN_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Peer:
    """A system, the packages of its environment, and its variants as arguments of its script."""

    name: str
    packages: tuple[str, ...]
    script: str
    variants: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def environment(self) -> Path:
        return ENVIRONMENTS / self.name


PEERS = (
    Peer(
        "flink",
        # Beam, which PyFlink needs, still imports pkg_resources.
        ("apache-flink==2.3.0", "setuptools<81"),
        "flink_bids.py",
        (
            ("Flink SQL, heap", ("--backend", "heap")),
            ("Flink SQL, RocksDB", ("--backend", "rocksdb")),
        ),
    ),
    Peer(
        "pathway",
        ("pathway==0.33.0",),
        "pathway_bids.py",
        (
            ("Pathway, streaming", ("--mode", "streaming")),
            ("Pathway, static", ("--mode", "static")),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Work:
    """What all peers do: two queries over the same files, with so many threads."""

    data: Dataset
    right: Answers
    threads: int


def measure(
    directory: Path, events: int, threads: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Yield the figures of each peer, variant and query; say which peers cannot be had."""
    files = [(lean, dataset(directory, events, lean=lean)) for lean in (False, True)]
    works = [(lean, Work(data, answers(data), threads)) for lean, data in files]
    for peer in PEERS:
        missing = _install(peer, say)
        if missing:
            say(f"skipping {peer.name}: {missing}")
            continue
        for variant, arguments in peer.variants:
            for query in ("aggregate", "join"):
                for lean, work in works:
                    workload = f"{query}, lean" if lean else query
                    say(f"{variant}: {workload}")
                    yield {"system": variant, "workload": workload} | _measured(
                        peer, arguments, query, work
                    )


def measure_queries(
    directory: Path, data: Dataset, threads: int, runs: int, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Return the figures of Flink for each of Nexmark's queries; none where it cannot be had."""
    flink = PEERS[0]
    missing = _install(flink, say)
    if missing:
        say(f"skipping {flink.name}: {missing}")
        return {}
    with tempfile.TemporaryDirectory(dir=directory, prefix="flink-") as folder:
        done = subprocess.run(
            [
                str(flink.environment / "bin" / "python"),
                str(HERE / "flink_nexmark.py"),
                *(str(data.bids), str(data.auctions), str(data.persons), folder),
                *("--threads", str(threads), "--runs", str(runs)),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=_RUN_SECONDS,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        say((done.stderr.strip().splitlines() or ["Flink stopped"])[-1])
    return {found["query"]: found for found in lines}


def _install(peer: Peer, say: Callable[[str], None]) -> str:
    """Make the peer's environment if there is none; return why it cannot be had, if so."""
    ready = peer.environment / ".ready"
    wanted = "\n".join(peer.packages)
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return ""
    say(f"installing {peer.packages[0]} into {os.path.relpath(peer.environment)} (once)")
    pip = [str(peer.environment / "bin" / "pip"), "install", "--quiet", *peer.packages]
    for command in ([sys.executable, "-m", "venv", str(peer.environment)], pip):
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["the installation failed"])[-1]
    ready.write_text(wanted, encoding="utf-8")
    return ""


def _measured(peer: Peer, arguments: tuple[str, ...], query: str, work: Work) -> dict[str, Any]:
    """Time a query, then have another process work out a check of its answer."""
    data, expected = work.data, getattr(work.right, query)
    rows = data.bid_rows + (data.auction_rows if query == "join" else 0)
    accounted = expected[1] if query == "aggregate" else expected[0]
    command = [
        str(peer.environment / "bin" / "python"),
        str(HERE / peer.script),
        *(query, str(data.bids), str(data.auctions), str(accounted)),
        *("--threads", str(work.threads)),
        *arguments,
    ]
    timed, used = _run(command)
    if "failed" in timed:
        return timed
    answered, _ = _run([*command, "--answer"])
    start_up, runs = timed["start_up_seconds"], timed["run_seconds"]
    return {
        "rows": rows,
        **timed,
        "answer": answered.get("answer", []),
        "answer_is_right": tuple(answered.get("answer", ())) == expected,
        "rows_per_second_with_start_up": round(rows / (start_up + runs[0])),
        "warm_rows_per_second": round(rows / runs[-1]),
        "processor_seconds": used.processor_seconds(),
        "peak_resident": used.peaks["all"].resident,
        "peak_proportional": used.peaks["all"].proportional,
    }


def _run(command: list[str]) -> tuple[dict[str, Any], Sampler]:
    """Return what a peer's script printed, or why it ``failed``; and what it used."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Sampler(process.pid) as used:
        try:
            printed, errors = process.communicate(timeout=_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"failed": f"not done after {_RUN_SECONDS} seconds"}, used
    lines = [line for line in printed.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        return {"failed": (errors.strip().splitlines() or ["no result"])[-1]}, used
    return json.loads(lines[-1]), used
