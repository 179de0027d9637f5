"""Runs statements on an open database."""

from headrace.session.functions import Functions
from headrace.session.instance import Instance
from headrace.session.opening import restore
from headrace.session.results import Freshness, Progress, Result
from headrace.session.session import Session
from headrace.session.sinks import begin_sinks
from headrace.session.subscription import Subscription

__all__ = [
    "Freshness",
    "Functions",
    "Instance",
    "Progress",
    "Result",
    "Session",
    "Subscription",
    "begin_sinks",
    "restore",
]
