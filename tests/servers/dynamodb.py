"""DynamoDB: the service of moto, in the process, on a free port of the loopback."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from servers.machine import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REGION = "eu-central-1"
RIGHTS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


@dataclass(frozen=True)
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


@contextmanager
def dynamodb(port: int = 0) -> Iterator[DynamoDB]:
    """Run the service.

    Raises:
        Unavailable: if moto is not installed.
    """
    try:
        import boto3
        from moto.server import ThreadedMotoServer
    except ImportError as error:
        raise Unavailable(f"{error}: pip install boto3 'moto[dynamodb,server]'") from error
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    server.start()
    try:
        host, bound = server.get_host_and_port()
        endpoint = f"http://{host}:{bound}"
        yield DynamoDB(endpoint, boto3.client("dynamodb", REGION, endpoint_url=endpoint, **RIGHTS))
    finally:
        server.stop()
