"""Reading views: snapshots, lookups and subscriptions."""

from headrace.serving.contents import Contents, History, key_values
from headrace.serving.operations import OPERATION, by_key, with_operations
from headrace.serving.subscription import Change, Follower

__all__ = [
    "OPERATION",
    "Change",
    "Contents",
    "Follower",
    "History",
    "by_key",
    "key_values",
    "with_operations",
]
