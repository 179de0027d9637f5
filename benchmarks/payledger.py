"""PayLedger: a rebuild of all balances beside a policy that changes in the past, and a replay.

The example of that name, with more events and merchants. The policy of one segment of ten moves,
effective three days ago; then the balances of one merchant in a hundred are replayed; and at last
all balances are rebuilt, which must give the same rows. Nothing is reconciled meanwhile.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace
from benchmarks.counters import NAMES, epochs_after, last_epoch
from benchmarks.memory import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

EXAMPLE = Path(__file__).parents[1] / "examples" / "payledger"
EVENTS_PER_MERCHANT = 100
_REPLAYED = 100
"""Of so many merchants, one is replayed."""
_WARM = 2
"""Replays of other merchants before the one that counts: the fill has warmed the rebuild."""
_BATCH = 200_000
_ROWS = "SELECT * FROM merchant_balance ORDER BY merchant_id, currency"


def measure(directory: Path, events: int, partitions: int) -> dict[str, Any]:
    """Return what each of them took, and what it read and wrote."""
    sys.path.insert(0, str(EXAMPLE))
    import balances  # noqa: PLC0415 (the example's own modules)
    import events as made  # noqa: PLC0415

    merchants = max(_REPLAYED, events // EVENTS_PER_MERCHANT)
    statements = (EXAMPLE / "statements.sql").read_text(encoding="utf-8")
    tables, views = statements.split("-- Each event", 1)
    (query,) = re.findall(r"VIEW merchant_balance AS(.*?);", statements, re.DOTALL)
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as folder,
        Sampler() as used,
        headrace.connect(
            folder,
            partitions=partitions,
            reconcile_budget=0,
            functions=[balances.merchant_balance_of],
        ) as db,
    ):
        db.sql(tables)
        db.insert("merchants", made.merchants(merchants))
        db.insert("reserve_policy", made.policies())
        arrived = made.payments(events, merchants)
        for first in range(0, arrived.num_rows, _BATCH):
            db.insert("payments", arrived.slice(first, _BATCH))
        said: list[str] = []
        found = {"fill": _timed(db, used, lambda: db.sql("-- Each event" + views))}
        db.compact()
        before = db.sql(_ROWS).to_arrow()
        found["policy change"] = _timed(db, used, lambda: db.sql(made.change()))
        after = db.sql(_ROWS).to_arrow()
        for nth in reversed(range(_WARM + 1)):
            replay = _replay(nth, merchants)
            timed = _timed(db, used, lambda replay=replay: said.append(db.sql(replay).message))
        found["replay of 1%"] = timed
        _require_equal(db.sql(_ROWS).to_arrow(), after, "the replay")
        replace = f"CREATE OR REPLACE MATERIALIZED VIEW merchant_balance AS{query}"
        found["rebuild"] = _timed(db, used, lambda: db.sql(replace))
        _require_equal(db.sql(_ROWS).to_arrow(), after, "the rebuild")
    return {
        "events": arrived.num_rows,
        "merchants": merchants,
        "balances": after.num_rows,
        "changed": _different(before, after),
        "parts": found,
        "said": said[-1:],
        "memory": used.to_json(),
    }


def _replay(nth: int, merchants: int) -> str:
    """Return the statement that replays some merchants, others for each number."""
    count = merchants // _REPLAYED
    ids = ", ".join(map(str, range(nth * count, (nth + 1) * count)))
    return f"REPLAY VIEW merchant_balance WHERE merchant_id IN ({ids})"


def _timed(db: headrace.Database, used: Sampler, act: Callable[[], Any]) -> dict[str, Any]:
    """Run a statement until what it changes can be read; return its time and counters."""
    before, worked, begun = last_epoch(db), _worked(used), time.perf_counter()
    act()
    db.flush()
    seconds = time.perf_counter() - begun
    made = epochs_after(db, before)
    totals = {name: sum(int(row[name] or 0) for row in made) for name in NAMES}
    processor = _worked(used) - worked
    return {"seconds": round(seconds, 2), "processor": round(processor, 2), "counters": totals}


def _worked(used: Sampler) -> float:
    return sum(used.processor_seconds().values())


def _require_equal(found: pa.Table, wanted: pa.Table, what: str) -> None:
    if not found.equals(wanted):
        raise AssertionError(f"{what} gives other rows: {_different(wanted, found)} differ")


def _different(before: pa.Table, after: pa.Table) -> int:
    pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
    return sum(old != new for old, new in pairs)
