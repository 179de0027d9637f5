"""Z-sets on Arrow tables: rows with weights, row equality, row order, and exact sums."""

from headrace.algebra.zset.order import OrderBy, orderable, row_codes, same, same_pairs
from headrace.algebra.zset.restriction import EVERY_ROW, Bounds, Restriction, Test
from headrace.algebra.zset.zset import DUE, HASH, WEIGHT, Layout, ZSet

__all__ = [
    "DUE",
    "EVERY_ROW",
    "HASH",
    "WEIGHT",
    "Bounds",
    "Layout",
    "OrderBy",
    "Restriction",
    "Test",
    "ZSet",
    "orderable",
    "row_codes",
    "same",
    "same_pairs",
]
