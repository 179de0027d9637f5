"""Sessions of an open database: dispatch of statements, rights, and properties."""

from headrace.session.needs import Need, to_read
from headrace.session.session import Session
from headrace.statements.results import Freshness, Progress, Result, Subscription

__all__ = ["Freshness", "Need", "Progress", "Result", "Session", "Subscription", "to_read"]
