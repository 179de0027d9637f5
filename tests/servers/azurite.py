"""Azure Blob Storage: Azurite, from npm, on a free port of the loopback."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import shutil
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.error import URLError

from servers.machine import CACHE, Unavailable, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that every Azurite has, whose key is published."""
_INSTALL_SECONDS, _START_SECONDS = 300, 60


@contextmanager
def azurite(directory: Path, container: str) -> Iterator[dict[str, str]]:
    """Run a server with a container; yield the options of a client.

    Raises:
        Unavailable: if it cannot be installed.
    """
    node = shutil.which("node")
    if node is None:
        raise Unavailable("no Node.js is installed")
    port = free_port()
    program = _installed() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    command = [node, str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    process = subprocess.Popen(
        [*command, "--location", str(directory), "--silent", "--skipApiVersionCheck"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    try:
        _create(endpoint, container)
        yield {"endpoint": endpoint, "account_name": ACCOUNT, "account_key": KEY}
    finally:
        process.kill()
        process.wait()


def _installed() -> Path:
    """Return the directory into which it is installed, once, by one process at a time."""
    target = CACHE / f"azurite-{VERSION}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            npm, draft = shutil.which("npm"), target.with_suffix(".draft")
            if npm is None:
                raise Unavailable("no npm is installed")
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            command = [npm, "install", "--no-audit", "--no-fund", f"azurite@{VERSION}"]
            try:
                subprocess.run(
                    command, cwd=draft, check=True, capture_output=True, timeout=_INSTALL_SECONDS
                )
            except (subprocess.SubprocessError, OSError) as error:
                raise Unavailable(f"Azurite cannot be installed: {error}") from error
            draft.rename(target)
    return target


def _create(endpoint: str, container: str) -> None:
    """Create a container, once the server answers."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(_signed(endpoint, container)):  # noqa: S310  (loopback)
                return
        except URLError as error:
            if time.monotonic() > until:
                raise Unavailable(f"Azurite does not answer: {error}") from error
            time.sleep(0.1)


def _signed(endpoint: str, container: str) -> urllib.request.Request:
    """Return the request that creates a container, signed by the account's shared key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2023-11-03"}
    named = "".join(f"{name}:{value}\n" for name, value in headers.items())
    path = f"/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
    text = f"PUT\n\n\n\n\n\n\n\n\n\n\n\n{named}{path}".encode()
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text, hashlib.sha256)).decode()
    return urllib.request.Request(  # noqa: S310  (loopback)
        f"{endpoint}/{container}?restype=container",
        method="PUT",
        headers={
            **headers,
            "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            "Content-Length": "0",
        },
    )
