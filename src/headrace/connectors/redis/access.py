"""Access to a Redis server: options, clients, and the translation of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.connectors.login import StoreLogin
from headrace.connectors.options import Alters, option
from headrace.errors import Code, HeadraceError
from headrace.formats.libraries import library as optional

if TYPE_CHECKING:
    from collections.abc import Callable

_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 30
_DENIED: Final = ("NOAUTH", "WRONGPASS", "DB index")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access(StoreLogin):
    """Options of a connection."""

    host: str = option("host", "hostname", alters=Alters.ADDRESS)
    port: int = option("port", default=6379, alters=Alters.ADDRESS)
    database: int = option("database", "db", default=0, alters=Alters.ADDRESS)

    @property
    def place(self) -> str:
        """The server and database, for messages."""
        return f"{self.host}:{self.port}/{self.database}"


def connected(access: Access, secret: Callable[[str], str]) -> Any:
    """Return a client with one connection and without retries, whose answers are bytes.

    ``secret`` returns the value of a secret. A request that is retried over a second connection may
    be executed in another order.

    Raises:
        HeadraceError: ``unavailable`` if the server does not answer; ``invalid`` if it refuses the
            user.
    """
    redis = library()
    given: dict[str, Any] = {
        "host": access.host,
        "port": access.port,
        "db": access.database,
        "username": access.user,
        "password": None if access.password is None else secret(access.password),
        "client_name": "headrace",
        "socket_timeout": _ANSWER_SECONDS,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_keepalive": True,
        "single_connection_client": True,
        "protocol": 2,
        "retry": redis.retry.Retry(redis.backoff.NoBackoff(), 0),
    }
    if access.tls:
        given |= {
            "ssl": True,
            "ssl_ca_certs": access.authority,
            "ssl_certfile": access.certificate,
            "ssl_keyfile": access.private_key,
        }
    try:
        client = redis.Redis(**given)
        client.ping()
    except (redis.RedisError, OSError) as error:
        raise failure(error, access) from error
    return client


def check(access: Access, secret: Callable[[str], str]) -> None:
    """Raise if the server cannot be reached; see :func:`connected`."""
    connected(access, secret).close()


def failure(error: Exception, access: Access) -> HeadraceError:
    """Translate an error of the client: ``invalid`` for a wrong login or a missing permission."""
    redis = library()
    said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    what = "did not complete the request"
    code, hint = Code.UNAVAILABLE, "It is tried again; remove the cause that it names."
    if isinstance(error, redis.AuthenticationError) or said.startswith(_DENIED):
        code, what = Code.INVALID, "refused the connection's user or database"
        hint = "Correct the connection's user, password or database, or what the user may do."
    elif isinstance(error, redis.exceptions.NoPermissionError):
        code, what = Code.INVALID, "refused a command that the user may not run"
        hint = "Let the user run EVAL, and read and write the sink's keys and headrace:*."
    elif isinstance(error, redis.ConnectionError | redis.TimeoutError | OSError):
        what = "could not be reached"
        hint = "Start the server, or correct the connection's host, port and tls."
    elif said.startswith(("MOVED", "CROSSSLOT")):
        code, what = Code.UNSUPPORTED, "is a cluster"
        hint = "Use a server that has all keys: a single one, or a primary with replicas."
    return HeadraceError(code, f'Redis at "{access.place}" {what}', f"It says: {said}.", hint)


def answers(pipeline: Any) -> list[Any]:
    """Return a pipeline's answers, or raise the first error, without the command in its text."""
    found: list[Any] = pipeline.execute(raise_on_error=False)
    for answer in found:
        if isinstance(answer, Exception):
            raise answer
    return found


def library() -> Any:
    """Return the client library.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    return optional("redis", "client for Redis", "redis")
