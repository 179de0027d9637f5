"""Sessions of an open database: dispatch of statements, rights, and properties.

Cancelling:

A statement runs on one thread. ``Session.cancel`` marks it
(``execution/runtime/cancelling.py``) and cancels the jobs with its tag
(``execution/engine/jobs/scope.py``): waiting for epochs and reporting progress then raise an
error; epochs for others continue. The shell runs statements on a thread of their own and only
counts Ctrl-C in the main one, so that no commit is interrupted (decision 8).
"""

from headrace.interfaces.session.needs import Need, to_read
from headrace.interfaces.session.session import Session
from headrace.interfaces.statements.results import Freshness, Progress, Result, Subscription

__all__ = ["Freshness", "Need", "Progress", "Result", "Session", "Subscription", "to_read"]
