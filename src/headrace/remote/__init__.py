"""A served database, used as an embedded one: the same methods, results and errors over HTTP."""

from headrace.remote.database import RemoteDatabase, connect
from headrace.remote.session import RemoteSession

__all__ = ["RemoteDatabase", "RemoteSession", "connect"]
