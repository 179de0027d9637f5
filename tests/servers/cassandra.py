"""Apache Cassandra: one node, from Maven Central, on free ports of the loopback."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from servers.machine import Freezes, Unavailable, free_port, jars, java

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "5.0.6"
_START_SECONDS = 120
USER, PASSWORD = "cassandra", "cassandra"
"""The user that a new node has."""

_SETTINGS = """
cluster_name: headrace
num_tokens: 1
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:{storage}"
listen_address: 127.0.0.1
storage_port: {storage}
rpc_address: 127.0.0.1
start_native_transport: true
native_transport_port: {port}
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
role_manager: CassandraRoleManager
commitlog_sync: batch
commitlog_segment_size: 8MiB
commitlog_total_space: 64MiB
memtable_heap_space: 64MiB
memtable_offheap_space: 32MiB
file_cache_enabled: false
networking_cache_size: 8MiB
concurrent_reads: 8
concurrent_writes: 8
auto_snapshot: false
"""

_LOGGING = """
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""

_OPENED = """
--add-exports java.base/jdk.internal.misc=ALL-UNNAMED
--add-exports java.management.rmi/com.sun.jmx.remote.internal.rmi=ALL-UNNAMED
--add-exports java.rmi/sun.rmi.registry=ALL-UNNAMED
--add-exports java.rmi/sun.rmi.server=ALL-UNNAMED
--add-exports java.sql/java.sql=ALL-UNNAMED
--add-exports java.base/java.lang.ref=ALL-UNNAMED
--add-exports jdk.unsupported/sun.misc=ALL-UNNAMED
--add-opens java.base/java.lang.module=ALL-UNNAMED
--add-opens java.base/jdk.internal.loader=ALL-UNNAMED
--add-opens java.base/jdk.internal.ref=ALL-UNNAMED
--add-opens java.base/jdk.internal.reflect=ALL-UNNAMED
--add-opens java.base/jdk.internal.math=ALL-UNNAMED
--add-opens java.base/jdk.internal.module=ALL-UNNAMED
--add-opens java.base/jdk.internal.util.jar=ALL-UNNAMED
--add-opens jdk.management/com.sun.management.internal=ALL-UNNAMED
--add-opens java.base/sun.nio.ch=ALL-UNNAMED
--add-opens java.base/java.io=ALL-UNNAMED
--add-opens java.base/java.lang=ALL-UNNAMED
--add-opens java.base/java.lang.reflect=ALL-UNNAMED
--add-opens java.base/java.util=ALL-UNNAMED
--add-opens java.base/java.util.concurrent=ALL-UNNAMED
--add-opens java.base/java.util.concurrent.atomic=ALL-UNNAMED
--add-opens java.base/java.net=ALL-UNNAMED
--add-opens java.base/java.nio=ALL-UNNAMED
"""


@dataclass
class Cassandra(Freezes):
    """One node; its data outlives :meth:`stop`."""

    directory: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """Start the node, and wait until it answers."""
        log = (self.directory / "cassandra.log").open("ab")
        place = jars("org.apache.cassandra", "cassandra-all", VERSION)
        agent = next(place.glob("jamm-*.jar"))
        command = [java(major=17), f"-javaagent:{agent}", "-Xmx512m", "-Xms256m", "-Xss512k"]
        command += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_OPENED.split()]
        command += [
            "-Djdk.attach.allowAttachSelf=true",
            f"-Dcassandra.config=file:{self.directory / 'cassandra.yaml'}",
            f"-Dcassandra.storagedir={self.directory / 'data'}",
            f"-Dcassandra.logdir={self.directory}",
            f"-Dlogback.configurationFile={self.directory / 'logback.xml'}",
            "-Dcassandra-foreground=yes",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-Dcassandra.ring_delay_ms=100",
        ]
        command += ["-cp", f"{place}/*", "org.apache.cassandra.service.CassandraDaemon"]
        self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self.directory / "cassandra.log").read_text("utf-8", "replace")
                raise Unavailable(f"Cassandra does not start: {text[-2000:]}")
            time.sleep(0.2)

    def stop(self, *, crash: bool = False) -> None:
        """Stop the node, or kill it."""
        if self._process is not None:
            (self._process.kill if crash else self._process.terminate)()
            self._process.wait(60)
            self._process = None

    def cluster(self) -> Any:
        """Return a client of the cluster, which the caller shuts down."""
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import Cluster

        return Cluster(
            ["127.0.0.1"],
            port=self.port,
            auth_provider=PlainTextAuthProvider(USER, PASSWORD),
            connect_timeout=5,
        )

    def query(self, text: str) -> list[Any]:
        """Run a statement, and return its rows."""
        cluster = self.cluster()
        try:
            return list(cluster.connect().execute(text))
        finally:
            cluster.shutdown()

    def _answers(self) -> bool:
        import socket

        from cassandra.cluster import NoHostAvailable

        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        cluster = self.cluster()
        try:
            cluster.connect()
        except NoHostAvailable:
            return False
        finally:
            cluster.shutdown()
        return True


@contextmanager
def cassandra(directory: Path, port: int | None = None) -> Iterator[Cassandra]:
    """Run a node over a directory, which keeps its ports and data.

    Raises:
        Unavailable: if it cannot be fetched, or does not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    settings = directory / "cassandra.yaml"
    if not settings.exists():
        settings.write_text(_SETTINGS.format(port=port or free_port(), storage=free_port()))
        (directory / "logback.xml").write_text(_LOGGING)
    (line,) = [x for x in settings.read_text().splitlines() if x.startswith("native_transport_p")]
    node = Cassandra(directory, int(line.rpartition(" ")[2]))
    node.start()
    try:
        yield node
    finally:
        node.stop(crash=True)
