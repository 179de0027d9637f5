"""Divides a search among processes, each with a Spark and seeds of its own."""

from __future__ import annotations

import itertools
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from generator.execution import Player
from generator.search import Result, Search
from sessions import short_session

_MANY = 500


@dataclass(frozen=True, slots=True)
class Part:
    """What one process is to try: so many pairs, from a seed on; ``seconds`` are of shrinking.

    With ``again``, each view is filled once more, from state of the first.
    """

    name: str
    seed: int
    pairs: int
    views: int
    seconds: float
    again: bool = False

    def play(self) -> Result:
        """Try it, with a line per case; what is interrupted returns what it has."""
        begin = time.monotonic()
        spark = short_session(hours=self.pairs >= _MANY)

        def report(text: str) -> None:
            done = search.result.coverage.views
            rate = done / max(1, time.monotonic() - begin) * 60
            print(
                f"{self.name}{done:>7,} of {self.pairs:,}, {rate:,.0f} a minute | {text}",
                flush=True,
            )

        player = Player(spark, again=self.again)
        search = Search(player, report, self.seconds)
        try:
            search.run(itertools.count(self.seed), self.pairs, self.views)
        except KeyboardInterrupt:
            report("stopped")
        if self.again:
            report(f"{player.taken_over} views took over state")
        spark.stop()
        return search.result


def played(
    processes: int, pairs: int, seed: int, views: int, seconds: float, *, again: bool = False
) -> Result:
    """Try so many pairs in so many processes, and add up what became of them."""
    if processes == 1:
        return Part("", seed, pairs, views, seconds, again).play()
    parts = [
        Part(f"{i + 1}: ", seed + i * pairs, len(range(i, pairs, processes)), views, seconds, again)
        for i in range(processes)
    ]
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        playing = [pool.submit(part.play) for part in parts]
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # it reaches them, and they report
        return sum((part.result() for part in playing), Result())
