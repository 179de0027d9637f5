"""Reading views: snapshots, lookups and subscriptions."""

from headrace.serving.asked_keys import AskedKeys
from headrace.serving.changed_rows import ChangedRows
from headrace.serving.contents import Contents, History, key_values
from headrace.serving.operations import CHANGE_COLUMNS, OPERATION, by_key, with_operations
from headrace.serving.point_in_time import CommittedRows, DatedRows
from headrace.serving.subscription import Change, Follower

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
