"""Reading views: snapshots, lookups and subscriptions."""

from headrace.execution.serving.changes import (
    CHANGE_COLUMNS,
    OPERATION,
    Change,
    ChangedRows,
    Follower,
    by_key,
    with_operations,
)
from headrace.execution.serving.contents import AskedKeys, Contents, History, key_values
from headrace.execution.serving.point_in_time import CommittedRows, DatedRows

__all__ = [
    "CHANGE_COLUMNS",
    "OPERATION",
    "AskedKeys",
    "Change",
    "ChangedRows",
    "CommittedRows",
    "Contents",
    "DatedRows",
    "Follower",
    "History",
    "by_key",
    "key_values",
    "with_operations",
]
