"""The profile of small epochs: its places exist, and their times add up."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pyarrow as pa
from benchmarks.epoch_costs import GARBAGE, REST, Profile, counted

from headrace.algebra.operators import Integrate
from headrace.algebra.spine import PackWriter, Spine
from headrace.algebra.zset import WEIGHT, Layout, ZSet

if TYPE_CHECKING:
    from pathlib import Path


def test_each_call_counts_for_its_place_alone(tmp_path: Path) -> None:
    columns, weight = pa.schema([("k", pa.int64())]), pa.schema([(WEIGHT, pa.int64())])
    layout = Layout(key=("k",), columns=columns, summed=weight)
    rows = pa.Table.from_pylist([{"__hash": 1, "k": 2, WEIGHT: 1}], schema=layout.schema)
    profile, fsync = Profile(), os.fsync
    with counted() as counts, profile.measured():
        before = Spine.open(tmp_path, layout, [])
        Integrate(layout).step((rows,), (before,))
        with PackWriter(tmp_path) as pack:
            pack.write(ZSet.of(layout, rows))
            pack.finish()
        gc.collect()
    assert profile.calls[GARBAGE]
    assert os.fsync is fsync
    assert counts == {"syncs": 1}
    table = profile.table(1)
    found = {row["place"]: row["calls"] for row in table if row["place"] != GARBAGE}
    places = ["spines opened", "operator Integrate", "runs written", "syncs", REST]
    assert list(found) == places
    assert found == dict(zip(places, (1, 1, 2, 1, 1), strict=True))
    assert all(profile.wall[place] > 0 for place in places)
