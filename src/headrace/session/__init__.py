"""What one client of an open database has."""

from headrace.session.session import Session
from headrace.statements.results import Freshness, Progress, Result, Subscription

__all__ = ["Freshness", "Progress", "Result", "Session", "Subscription"]
