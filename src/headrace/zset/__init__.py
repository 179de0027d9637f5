"""Z-sets on Arrow tables: rows with weights, row equality, row order, and exact sums."""

from headrace.zset.equality import row_codes, same, same_pairs
from headrace.zset.layout import DUE, HASH, WEIGHT, Layout
from headrace.zset.order import OrderBy, orderable
from headrace.zset.restriction import EVERY_ROW, Bounds, Restriction, Test
from headrace.zset.zset import ZSet

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
