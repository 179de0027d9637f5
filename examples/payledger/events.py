"""Made-up payments of many merchants, the same for the same seed: late, and some of them twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa

SEGMENTS = (
    "retail",
    "travel",
    "gaming",
    "market",
    "food",
    "media",
    "health",
    "study",
    "parts",
    "craft",
)
CURRENCIES = ("EUR", "USD")
START = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 10
"""The events are spread evenly over this many days."""
RATE, NEW_RATE = Decimal("0.10"), Decimal("0.15")
CHANGED = "travel"
"""The segment whose reserve changes."""
EFFECTIVE = START + timedelta(days=DAYS - 3)
"""When it does: three days before the last event."""

_LATE, _TWICE = 0.05, 0.03
_KINDS = ("capture_settled", "funds_settled", "refund_posted", "chargeback_opened", "payout_sent")
_SCHEMA = pa.schema(
    [
        ("event_id", pa.int64()),
        ("kind", pa.string()),
        ("merchant_id", pa.int64()),
        ("currency", pa.string()),
        ("amount", pa.decimal128(18, 2)),
        ("capture_id", pa.int64()),
        ("event_time", pa.timestamp("us", "UTC")),
    ]
)


def merchants(count: int) -> pa.Table:
    """Return merchants with a segment each, equally many of every segment."""
    ids = np.arange(count)
    return pa.table(
        {"merchant_id": ids, "segment": pa.array(SEGMENTS).take(pa.array(ids % len(SEGMENTS)))}
    )


def policies() -> pa.Table:
    """Return the first version of the policy of each segment, valid from the start."""
    count = len(SEGMENTS)
    return pa.table(
        {
            "segment": list(SEGMENTS),
            "effective_from": pa.array([START] * count, pa.timestamp("us", "UTC")),
            "rate": pa.array([RATE] * count, pa.decimal128(5, 4)),
            "version": pa.array([1] * count, pa.int32()),
        }
    )


def change() -> str:
    """Return the statement that moves the reserve of one segment, effective three days ago."""
    at = EFFECTIVE.strftime("%Y-%m-%d %H:%M:%S")
    return f"INSERT INTO reserve_policy VALUES ('{CHANGED}', TIMESTAMP '{at}', {NEW_RATE}, 2)"


def payments(count: int, merchant_count: int, seed: int = 7) -> pa.Table:
    """Return about this many events in the order in which they arrive.

    Of ten captures, seven are settled after two days; one in five is refunded in part, one in fifty
    charged back. One event in twenty arrives up to two days late, one in thirty twice.
    """
    rng = np.random.default_rng(seed)
    captures = count // 2
    at = np.sort(rng.integers(0, DAYS * 86_400_000_000, captures))
    merchant = rng.integers(0, merchant_count, captures)
    currency = rng.integers(0, len(CURRENCIES), captures) * (merchant % 3 == 0)
    cents = rng.integers(500, 50_000, captures)
    ids = np.arange(captures)
    day = 86_400_000_000
    dice = rng.random(captures)
    some = [
        np.ones(captures, bool),
        dice < 0.7,
        dice > 0.8,
        dice < 0.02,
        (dice > 0.5) & (dice < 0.56),
    ]
    after = [0, 2 * day, day, 3 * day, 4 * day]
    share = [100, 0, 20, 100, 30]
    parts = [
        (np.full(mask.sum(), nth), ids[mask], at[mask] + gap, cents[mask] * part // 100)
        for nth, (mask, gap, part) in enumerate(zip(some, after, share, strict=True))
    ]
    kind, capture, time, amount = (np.concatenate(each) for each in zip(*parts, strict=True))
    inside = np.flatnonzero(time < DAYS * day)
    late = np.where(rng.random(len(inside)) < _LATE, rng.integers(0, 2 * day, len(inside)), 0)
    twice = inside[rng.random(len(inside)) < _TWICE]
    arrival = np.concatenate([time[inside] + late, time[twice] + rng.integers(0, day, len(twice))])
    chosen = np.concatenate([inside, twice])[np.argsort(arrival, kind="stable")]
    origin = capture[chosen]
    return pa.Table.from_arrays(
        [
            pa.array(chosen),
            pa.array(_KINDS).take(pa.array(kind[chosen])),
            pa.array(merchant[origin]),
            pa.array(CURRENCIES).take(pa.array(currency[origin])),
            _money(amount[chosen]),
            pa.array(origin),
            pa.array(time[chosen] + int(START.timestamp()) * 1_000_000).cast(
                pa.timestamp("us", "UTC")
            ),
        ],
        schema=_SCHEMA,
    )


def _money(cents: np.ndarray) -> pa.Array:
    """Return cents as decimals with two digits: the same whole numbers, of another scale."""
    whole = pa.array(cents).cast(pa.decimal128(19, 0))
    return pa.Array.from_buffers(pa.decimal128(18, 2), len(whole), whole.buffers())
