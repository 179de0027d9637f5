"""Changes that reach subscribers by server-sent events, with few and with many of them."""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import headrace
from benchmarks.counters import percentiles
from benchmarks.subscribers import Following, allow_files, follow
from headrace.interfaces.server.address import ListenAddress
from headrace.interfaces.server.listener import HttpServer

if TYPE_CHECKING:
    from pathlib import Path

_WARM_SECONDS: Final = 5.0
_FEED_SECONDS: Final = 0.1
_GROUPS: Final = 100
_MOST_EPOCHS: Final = 1000
CROWDS: Final = ((0, 0), (1000, 10))
"""How many subscribers follow what does not change, and how many take nothing of what does."""


def measure(directory: Path, seconds: float, partitions: int) -> list[dict[str, Any]]:
    """Return, for each crowd, the milliseconds from commit to client, and those of epochs."""
    allow_files()
    address = ListenAddress.of("127.0.0.1:0")
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        headrace.connect(folder, partitions=partitions) as db,
        HttpServer(db, address, address.bound()) as server,
    ):
        db.sql(
            "CREATE STREAM s (k INT, x INT); CREATE STREAM quiet (k INT);"
            "CREATE MATERIALIZED VIEW busy AS SELECT k, count(*) AS n FROM s GROUP BY k;"
            "CREATE MATERIALIZED VIEW still AS SELECT k FROM quiet"
        )
        _feed(db, _WARM_SECONDS)
        return [
            _measured(db, Following(server.address.port, idle, slow, seconds))
            for idle, slow in CROWDS
        ]


def _measured(db: Any, following: Following) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        ended = pool.submit(follow, following)
        while not ended.done():
            _feed(db, 1.0)
        arrived: dict[int, float] = ended.result()
    epochs = [each for each in db.parts.ledger.epochs.newest(_MOST_EPOCHS) if each.epoch in arrived]
    late = [arrived[each.epoch] - each.committed_at for each in epochs]
    return {
        "idle": following.idle,
        "slow": following.slow,
        "push": percentiles(late),
        "epoch": percentiles([each.counters["seconds"] for each in epochs]),
    }


def _feed(db: Any, seconds: float) -> None:
    """Insert rows ten times a second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        db.insert("s", [(k, 1) for k in range(_GROUPS)])
        time.sleep(_FEED_SECONDS)
