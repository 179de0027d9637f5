"""Reading views: snapshots, lookups and subscriptions."""

from headrace.serving.contents import Contents
from headrace.serving.subscription import Change, Follower

__all__ = ["Change", "Contents", "Follower"]
