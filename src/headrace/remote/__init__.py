"""A served database with the methods, results and errors of an embedded one, over HTTP."""

from headrace.remote.database import RemoteDatabase, connect
from headrace.remote.session import RemoteSession

__all__ = ["RemoteDatabase", "RemoteSession", "connect"]
