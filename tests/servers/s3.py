"""S3 for tests: moto's server, in the process."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def served_bucket(name: str) -> Iterator[dict[str, str]]:
    """Serve a new bucket; yield the options of a client for it."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(
        ip_address="127.0.0.1", port=0, verbose=False
    )
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "endpoint": f"http://{host}:{port}",
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
        }
        client = boto3.client(
            "s3",
            endpoint_url=options["endpoint"],
            region_name=options["region"],
            aws_access_key_id=options["access_key_id"],
            aws_secret_access_key=options["secret_access_key"],
        )
        client.create_bucket(Bucket=name)
        yield options
    finally:
        server.stop()
