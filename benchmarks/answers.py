"""The answers that every system must come to, worked out from the files by Arrow alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.nexmark import Dataset

BLOCK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Answers:
    """Totals over the answer of each query, as integers.

    ``aggregate``: rows, sum of the counts, sum of the sums. ``join``: rows, sum of the prices, sum
    of the sellers.
    """

    aggregate: tuple[int, int, int]
    join: tuple[int, int, int]


def answers(data: Dataset) -> Answers:
    """Return the right answers over a dataset."""
    bids = _columns(data.bids, "auction", "price")
    auctions = _columns(data.auctions, "id", "seller")
    joined = bids.join(auctions, keys="auction", right_keys="id", join_type="inner")
    return Answers(
        aggregate=(
            pc.count_distinct(bids["auction"]).as_py(),
            bids.num_rows,
            pc.sum(bids["price"]).as_py(),
        ),
        join=(joined.num_rows, pc.sum(joined["price"]).as_py(), pc.sum(joined["seller"]).as_py()),
    )


def _columns(path: Path, *names: str) -> pa.Table:
    schema = pa.schema([(name, pa.int64()) for name in names])
    return pj.read_json(
        path,
        pj.ReadOptions(block_size=BLOCK_BYTES),
        pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
