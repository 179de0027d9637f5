"""The row of a key at a time equals what a plain list of all rows says, however it was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algebra.spine import Run, Spine
from headrace.algebra.zset import HASH, WEIGHT, Layout, ZSet
from headrace.algebra.zset.row_hash import hashes_of
from headrace.errors import HeadraceError
from headrace.execution.serving import AskedKeys, CommittedRows, Contents, DatedRows, point_in_time
from headrace.execution.serving.values import micros
from headrace.types import rows_of
from length import choose
from runtime.pure import PureDatabase
from serving.played import STEP, played

BIGINT = pa.int64()
PAIR = st.tuples(st.one_of(st.none(), st.integers(-1, 6)), st.integers(0, 30))
HOUR = timedelta(hours=1)
START = datetime(2026, 3, 1, tzinfo=UTC)


def asked_of(keys: list, name: str) -> AskedKeys:
    return AskedKeys.among([name], [pa.array(keys, BIGINT)], len(keys))


@settings(max_examples=choose(15, 400))
@given(
    steps=st.lists(STEP, min_size=2, max_size=8),
    pairs=st.lists(PAIR, max_size=20),
    part_rows=st.sampled_from([1, 3, 1 << 18]),
    restart=st.integers(0, 10),
)
def test_a_row_as_of_an_epoch_is_that_of_the_contents_then(steps, pairs, part_rows, restart):
    with TemporaryDirectory() as folder:
        db = PureDatabase(Path(folder))
        for relation in played(db, steps):
            since, last = db.ledger.spines.since(rows_of(relation.id)), db.ledger.head.epoch
            history = db.history(relation.id)
            (key,) = history.layout.key
            (value,) = (name for name in history.layout.columns.names if name != key)
            contents = {
                epoch: {row[0]: row[1] for row in db.rows(relation.id, epoch)}
                for epoch in range(since, last + 1)
            }
            keys = [k for k, _ in pairs]
            epochs = [since + e % (last + 1 - since) if e else -1 for _, e in pairs]
            rows = CommittedRows(history, asked_of(keys, key), (value,), (restart,), part_rows)
            found = rows.at(np.array(epochs, np.int64))[value].to_pylist()
            assert found == [
                None if k is None or e < 0 else contents[e].get(k)
                for k, e in zip(keys, epochs, strict=True)
            ]
            # By columns that the runs are not arranged by, which are read whole.
            if relation.name != "above":
                values = [
                    contents[e].get(k) if k in contents.get(e, {}) else 0
                    for k, e in zip(keys, epochs, strict=True)
                ]
                columns = [pa.array(keys, BIGINT), pa.array(values, BIGINT)]
                both = AskedKeys.among([key, value], columns, len(keys))
                whole = CommittedRows(history, both, (key,), (restart,), part_rows)
                assert whole.at(np.array(epochs, np.int64))[key].to_pylist() == [
                    k if e >= 0 and contents[e].get(k, -1) == v else None
                    for k, v, e in zip(keys, values, epochs, strict=True)
                ]
            if since and keys.count(None) < len(keys):
                with pytest.raises(HeadraceError, match="can no longer be read"):
                    rows.at(np.full(len(keys), since - 1))
        db.close()


ROW = st.tuples(st.sampled_from(["ann", "bob", "", None]), st.one_of(st.none(), st.integers(-9, 9)))
ENTITY = Layout(
    ("user", "at"),
    pa.schema([("v", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
    pa.schema([pa.field(WEIGHT, BIGINT)]),
)


BY_USER = Layout(("user",), ENTITY.columns, ENTITY.summed)


def spine_of(rows: list, cuts: list[int], layout: Layout) -> Spine:
    """Return rows of (user, hour, value) as the sum of several runs, one of which is undone."""

    def run(part: list, weight: int) -> Run:
        users = pa.array([user for user, _, _ in part], pa.string())
        hours = [None if hour is None else START + hour * HOUR for _, hour, _ in part]
        at = pa.array(hours, pa.timestamp("us", "UTC"))
        key = {"user": users, "at": at}
        hashes = pa.array(hashes_of([key[name] for name in layout.key], len(part)))
        values = pa.array([v for *_, v in part], BIGINT)
        weights = pa.array(np.full(len(part), weight))
        columns = [hashes, values, users, at, weights]
        table = pa.Table.from_arrays(columns, schema=layout.schema)
        return Run.of(ZSet(layout, table).consolidated())

    undone = [(user, hour, -1) for user, hour, _ in rows]
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    runs = [run(part, 1) for part in [*parts, undone] if part]
    return Spine(layout, (*runs, run(undone, -1)) if undone else ())


@settings(max_examples=choose(50, 2000))
@given(
    rows=st.lists(ROW, max_size=25, unique=True),
    cuts=st.lists(st.integers(0, 25), max_size=2),
    pairs=st.lists(ROW, max_size=12),
    part_rows=st.sampled_from([1, 4, 1 << 18]),
    looked_up=st.booleans(),
)
def test_the_last_row_before_a_time_is_that_of_a_plain_search(
    rows, cuts, pairs, part_rows, looked_up
):
    numbered = [(user, hour, number) for number, (user, hour) in enumerate(rows)]
    layout = BY_USER if looked_up else ENTITY
    spine = spine_of(numbered, sorted(min(cut, len(rows)) for cut in cuts), layout)
    users = [user for user, _ in pairs]
    times = pa.array(
        [None if hour is None else START + hour * HOUR for _, hour in pairs],
        pa.timestamp("us", "UTC"),
    )
    asked = AskedKeys.among(["user"], [pa.array(users, pa.string())], len(pairs))
    dated = DatedRows(Contents(spine), asked, "at", ("v", "at"), part_rows)
    known = times.is_valid().to_numpy(zero_copy_only=False).nonzero()[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(point_in_time, "_ROWS_OF_A_LOOKUP", 0)
        patch.setattr(point_in_time, "_KEYS_OF_A_LOOKUP", 2)
        assert dated.is_looked_up() == (looked_up and spine.rows_upper_bound > 0)
        found = dated.at(micros(times), known)["v"].to_pylist()

    def before(user, hour):
        if user is None or hour is None:
            return None
        earlier = [(h, v) for u, h, v in numbered if u == user and h is not None and h <= hour]
        return max(earlier)[1] if earlier else None

    assert found == [before(*pair) for pair in pairs]


def test_keys_with_one_hash_are_told_apart():
    names = pa.array(["a", "b", "a", None, "c"])
    asked = AskedKeys.among(["x"], [names], 5)
    asked = AskedKeys(asked.names, np.zeros(3, np.int64), asked.values, asked.of)
    rows = pa.table({HASH: pa.array([0, 0], BIGINT), "x": ["c", "z"]})
    probes, places = asked.equal(np.array([0, 1, 2]), rows.take(pa.array([0, 0, 0])))
    assert [asked.values[0][int(p)].as_py() for p in probes] == ["c"]
    assert len(places) == 1
    assert asked.of[3] == -1


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([-1, 1999], pa.timestamp("ns")), [-1, 1]),
        (pa.array([2, None], pa.timestamp("s", "Europe/Zurich")), [2_000_000, 0]),
        (pa.array([-1, 1], pa.date32()), [-86_400_000_000, 86_400_000_000]),
        (pa.array([3], pa.timestamp("ms")), [3000]),
    ],
)
def test_times_are_microseconds_rounded_down(times, expected):
    assert micros(times).tolist() == expected


def test_a_time_beyond_64_bits_is_an_error():
    with pytest.raises(OverflowError):
        micros(pa.array([2**62], pa.timestamp("s")))
