"""What one client of an open database has."""

from headrace.session.session import Session
from headrace.statements.reading.subscription import Subscription
from headrace.statements.results import Freshness, Progress, Result

__all__ = ["Freshness", "Progress", "Result", "Session", "Subscription"]
