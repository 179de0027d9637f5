"""DynamoDB: the service of moto, in memory, on a free port of the loopback.

It is in the process, or in one of its own (``python -m servers.dynamodb PORT``), which can be
frozen, and be out of reach for some time with all that it has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers.machine import Freezes, Unavailable, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REGION = "eu-central-1"
RIGHTS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


@dataclass
class DynamoDB:
    """A running service, and a client of it."""

    endpoint: str
    client: Any

    def create(self, table: str, key: Mapping[str, str]) -> str:
        """Create a table by its key: one or two attributes, with the letters of their types."""
        kinds = dict(zip(key, ("HASH", "RANGE"), strict=False))
        self.client.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": n, "KeyType": kind} for n, kind in kinds.items()],
            AttributeDefinitions=[
                {"AttributeName": n, "AttributeType": letter} for n, letter in key.items()
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        return table


@dataclass
class OwnDynamoDB(DynamoDB, Freezes):
    """A service in a process of its own; what it has outlives :meth:`stop`."""

    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def stop(self) -> None:
        """Have the service refuse connections, as if it was away: it has nothing on disk."""
        self._tell(signal.SIGUSR1)

    def start(self) -> None:
        """Have the service take connections again."""
        self._tell(signal.SIGUSR2)

    def _tell(self, signal_: signal.Signals) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal_)
        self._process.stdout.readline()


@contextmanager
def own_dynamodb() -> Iterator[OwnDynamoDB]:
    """Run the service in a process of its own.

    Raises:
        Unavailable: if moto is not installed.
    """
    _require()
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "servers.dynamodb", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # it says what it is asked
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        endpoint = f"http://127.0.0.1:{port}"
        yield OwnDynamoDB(endpoint, _client(endpoint), process)
    finally:
        process.kill()
        process.wait()


def _require() -> None:
    try:
        import boto3  # noqa: F401
        from moto.server import ThreadedMotoServer  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"{error}: pip install boto3 'moto[dynamodb,server]'") from error


def _client(endpoint: str) -> Any:
    import boto3

    return boto3.client("dynamodb", REGION, endpoint_url=endpoint, **RIGHTS)


@contextmanager
def dynamodb(port: int = 0) -> Iterator[DynamoDB]:
    """Run the service.

    Raises:
        Unavailable: if moto is not installed.
    """
    _require()
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        host, bound = server.get_host_and_port()
        endpoint = f"http://{host}:{bound}"
        yield DynamoDB(endpoint, _client(endpoint))
    finally:
        server.stop()


def main() -> None:
    """Run the service; SIGUSR1 has it refuse connections, and SIGUSR2 take them again."""
    from moto.server import ThreadedMotoServer

    told = {signal.SIGUSR1, signal.SIGUSR2}
    signal.pthread_sigmask(signal.SIG_BLOCK, told)
    while True:
        server = ThreadedMotoServer("127.0.0.1", int(sys.argv[1]), verbose=False)
        server.start()
        print("started", flush=True)
        while signal.sigwait(told) != signal.SIGUSR1:
            continue
        server.stop()
        print("stopped", flush=True)
        while signal.sigwait(told) != signal.SIGUSR2:
            continue


if __name__ == "__main__":
    main()
