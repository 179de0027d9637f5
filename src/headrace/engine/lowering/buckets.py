"""Buckets: the few hashes of rows that operators find by their order instead of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import LongType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.catalyst import plan
    from headrace.catalyst.transplant import Transplant

_STEP = 1 << 58
BUCKETS = tuple(range(-(1 << 63), 1 << 63, _STEP))
"""The 64 hashes of the buckets; such rows can be spread over at most as many partitions."""


def bucket_of(transplant: Transplant, attributes: Iterable[plan.Attribute]) -> Any:
    """Return the hash of a row's bucket: the highest bits of the hash of its columns."""
    highest = transplant.literal(-_STEP, LongType())
    return transplant.scala.expression("BitwiseAnd", transplant.hash_of_row(attributes), highest)
