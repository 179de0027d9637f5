"""A served database with the methods, results and errors of an embedded one, over HTTP."""

from headrace.interfaces.remote.database import RemoteDatabase, connect
from headrace.interfaces.remote.session import RemoteSession

__all__ = ["RemoteDatabase", "RemoteSession", "connect"]
