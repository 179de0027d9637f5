"""Plays many histories in several processes, and says how far it is and what has failed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from simulation import systematic
from simulation.histories import History, failure_of, shrunk
from simulation.world import BUNDLES, DISK, STORE, Site, in_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CHUNK: Final = 10
_SHRINKS: Final = 300
"""How many smaller histories are tried for a failure."""
_MOST_FAILURES: Final = 20
"""After so many failures the run ends: more of them say nothing new."""


class Failure(NamedTuple):
    """A history that fails: what is to be played again, where it failed, and a smaller one."""

    name: str
    where: str
    report: str


class Work(NamedTuple):
    """Some histories: seeds, or the positions in one of the lists of ``systematic.py``."""

    kind: str
    numbers: Sequence[int]


class Done(NamedTuple):
    """What has become of some work."""

    played: int
    failures: list[Failure]


@dataclass
class Player:
    """Plays histories in one process."""

    site: Site
    lists: dict[str, list[History]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    """Where histories have failed: the first at each place is made smaller."""

    def play(self, work: Work) -> Done:
        """Play some histories."""
        failures = []
        for number in work.numbers:
            history = self.history(work.kind, number)
            error = failure_of(self.site, history)
            if error is not None:
                failures.append(self._failed(work.kind, number, history, error))
        return Done(len(work.numbers), failures)

    def history(self, kind: str, number: int) -> History:
        """Return the history of a number."""
        return History.of(number) if kind == SEEDS else self.listed(kind)[number]

    def listed(self, kind: str) -> list[History]:
        """Return the histories of a list, which is made once."""
        if kind not in self.lists:
            name, _, storage = kind.partition(" on a ")
            self.lists[kind] = list(_LISTS[name](self.site, storage))
        return self.lists[kind]

    def _failed(self, kind: str, number: int, history: History, error: BaseException) -> Failure:
        where = _where(error)
        name = f"SEED={number}" if kind == SEEDS else f'LIST="{kind}" SEED={number}'
        report = ""
        if where not in self.known:
            self.known.add(where)

            def fails(smaller: History) -> bool:
                found = failure_of(self.site, smaller)
                return found is not None and _where(found) == where

            small = shrunk(history, fails, _SHRINKS)
            found = failure_of(self.site, small) or error
            report = f"{small.text()}\n{''.join(traceback.format_exception(found))}"
        return Failure(name, where, report)


SEEDS: Final = "seeds"
_LISTS: Final = {
    "every trouble": systematic.singles,
    "every pair of ends": systematic.pairs,
}
KINDS: Final = tuple(f"{name} on a {place}" for name in _LISTS for place in (STORE, BUNDLES, DISK))
"""The lists, each with where files are kept."""


def _where(error: BaseException) -> str:
    """Return the place at which something failed: failures at one place count as the same."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).partition("\n")[0]
    return f"{Path(last.filename).name}:{last.lineno}: {type(error).__name__}: {text[:100]}"


_player: Player
_used: Final = ExitStack()


def _begin(place: str) -> None:
    """Begin a worker; Ctrl-C is for the process that has started it."""
    global _player  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.disable(logging.WARNING)
    site = Site(Path(place))
    _used.enter_context(site.used())  # until it ends: its directory is removed with all others
    _player = Player(site)


def _play(work: Work) -> Done:
    return _player.play(work)


def _length(kind: str) -> int:
    return len(_player.listed(kind))


@dataclass
class Tally:
    """What has been played so far."""

    total: int
    begun: float = field(default_factory=time.monotonic)
    played: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """How many histories are played in a second."""
        return self.played / max(time.monotonic() - self.begun, 1e-9)

    def line(self, kind: str) -> str:
        """Return how far it is."""
        left = (self.total - self.played) / max(self.rate, 1e-9)
        return (
            f"{kind}: {self.played:,} of {self.total:,}, {self.rate:.1f} a second,"
            f" {len(self.failures)} failures, {left // 60:.0f}:{left % 60:02.0f} left"
        )


def run(seeds: range, kinds: Sequence[str], processes: int) -> int:
    """Play lists, then seeds; return 1 if anything has failed, 2 if it was interrupted."""
    os.environ["PYTHONHASHSEED"] = "0"  # sets have one order in all workers
    context, begun, interrupted = multiprocessing.get_context("spawn"), time.monotonic(), False
    tallies: list[Tally] = []
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has had them ignored
        signal.signal(number, signal.default_int_handler)
    with TemporaryDirectory(prefix="simulations-", dir=in_memory()) as place:
        pool = context.Pool(processes, _begin, (place,))
        try:
            for kind in [*kinds, *([SEEDS] if seeds else [])]:
                numbers = seeds if kind == SEEDS else range(pool.apply(_length, (kind,)))
                tallies.append(Tally(len(numbers)))
                _tell(tallies[-1], kind, pool.imap_unordered(_play, _chunks(kind, numbers)))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            pool.terminate()
            pool.join()
    seconds, played = time.monotonic() - begun, sum(each.played for each in tallies)
    failures = sum(len(each.failures) for each in tallies)
    print(f"{played:,} histories in {seconds:.0f} s, {failures} failures", end="")
    print(", interrupted" if interrupted else "")
    return 1 if failures else 2 if interrupted else 0


def _tell(tally: Tally, kind: str, played: Iterator[Done]) -> None:
    """Count what is played, and say how far it is and what has failed."""
    known, shown = set[str](), 0.0
    try:
        for done in played:
            tally.played += done.played
            for failure in done.failures:
                tally.failures.append(failure)
                _clear()
                print(f"make simulate {failure.name}: {failure.where}")
                if failure.report and failure.where not in known:
                    known.add(failure.where)
                    print(failure.report)
            if time.monotonic() - shown > (1 if sys.stdout.isatty() else 15):
                shown = time.monotonic()
                _show(tally.line(kind))
            if len(tally.failures) >= _MOST_FAILURES:
                print(f"{len(tally.failures)} failures: no more are looked for")
                break
    finally:
        _clear()
        print(f"{kind}: {tally.played:,} played, {tally.rate:.1f} a second,", end="")
        print(f" {len(tally.failures)} failures", flush=True)


def _chunks(kind: str, numbers: range) -> Iterator[Work]:
    left = iter(numbers)
    while chunk := list(islice(left, _CHUNK)):
        yield Work(kind, chunk)


def _show(line: str) -> None:
    if sys.stdout.isatty():
        print(f"\r{line}\033[K", end="", flush=True)
    else:
        print(line, flush=True)


def _clear() -> None:
    if sys.stdout.isatty():
        print("\r\033[K", end="")


def replay(kind: str, number: int) -> int:
    """Play one history, and print its steps; return 1 if it fails."""
    logging.disable(logging.WARNING)
    site = Site()
    with site.used():
        player = Player(site)
        print(player.history(kind, number).text())
        done = player.play(Work(kind, [number]))
    for failure in done.failures:
        print(f"{failure.where}\n{failure.report}")
    print("failed" if done.failures else "passed")
    return 1 if done.failures else 0
