"""Apache Kafka: one broker in KRaft mode, from Maven Central, on free ports of the loopback.

Its jars are fetched once, by the Ivy that PySpark brings, into the user's cache.
"""

from __future__ import annotations

import socket
import subprocess
import time
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from random import randbytes
from typing import TYPE_CHECKING, Any

from servers.machine import Freezes, Unavailable, free_port, jars, java

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

VERSION = "4.1.1"
_START_SECONDS = 60

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}{listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""

_GUARDED = """
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.ssl.ssl.keystore.type=PEM
listener.name.ssl.ssl.keystore.location={certificates}
"""


@dataclass(frozen=True)
class Guard:
    """A user who may log in, by PLAIN and SCRAM, and the PEM file of the broker's certificates."""

    user: str
    password: str
    certificates: Path


@dataclass
class Kafka(Freezes):
    """One broker; its data outlives :meth:`stop`."""

    directory: Path
    port: int
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"127.0.0.1:{self.port}"

    def guarded(self, protocol: str) -> str:
        """Return what clients connect to by a protocol of a guarded broker."""
        text = (self.directory / "server.properties").read_text()
        return text.partition(f",{protocol}://")[2].partition(",")[0].partition("\n")[0]

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        log = (self.directory / "kafka.log").open("ab")
        self._process = subprocess.Popen(
            [*_java(), "-Xmx512m", "kafka.Kafka", str(self.directory / "server.properties")],
            stdout=log,
            stderr=log,
        )
        until = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                text = (self.directory / "kafka.log").read_text("utf-8", "replace")
                raise Unavailable(f"Kafka does not start: {text[-2000:]}")
            time.sleep(0.2)

    def stop(self, *, crash: bool = False) -> None:
        """Stop the broker, or kill it."""
        if self._process is not None:
            (self._process.kill if crash else self._process.terminate)()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def create(self, topic: str, partitions: int = 1, **settings: str) -> str:
        """Create a topic; return its name."""
        from confluent_kafka.admin import NewTopic

        config = {key.replace("_", "."): value for key, value in settings.items()}
        admin = self._admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(30)
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(30)
        while topic in admin.list_topics(timeout=10).topics:
            time.sleep(0.05)

    def widen(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic."""
        from confluent_kafka.admin import NewPartitions

        admin = self._admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < partitions:
            time.sleep(0.05)

    def produce(self, topic: str, messages: Iterable[dict[str, Any]], **settings: Any) -> None:
        """Write messages: ``value``, and maybe ``key``, ``partition``, ``timestamp``, ``headers``."""
        producer, failed = self.producer(**settings), []

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failed.append(error.str())

        for message in messages:
            producer.produce(topic, on_delivery=delivered, **message)
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not failed, failed[0]

    def producer(self, **settings: Any) -> Any:
        """Return a producer."""
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, **settings})

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address})

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        try:
            self._admin().list_topics(timeout=5)
        except KafkaException:
            return False
        return True


@contextmanager
def kafka(
    directory: Path, port: int | None = None, guard: Guard | None = None, settings: str = ""
) -> Iterator[Kafka]:
    """Run a broker over a directory, which keeps its port and data.

    A guarded one has listeners for SASL_PLAINTEXT and SSL, too. ``settings`` are further lines of
    its properties.

    Raises:
        Unavailable: if it cannot be fetched, or does not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    properties = directory / "server.properties"
    if not properties.exists():
        given = {"port": port or free_port(), "controller": free_port(), "data": directory / "data"}
        more = "" if guard is None else _listeners()
        text = _PROPERTIES.format(**given, listeners=more) + settings
        properties.write_text(text + ("" if guard is None else _GUARDED.format(**asdict(guard))))
        _format(properties, guard)
    (line,) = [x for x in properties.read_text().splitlines() if x.startswith("advertised")]
    broker = Kafka(directory, int(line.partition(",")[0].rpartition(":")[2]))
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _listeners() -> str:
    return f",SASL_PLAINTEXT://127.0.0.1:{free_port()},SSL://127.0.0.1:{free_port()}"


def _format(properties: Path, guard: Guard | None) -> None:
    """Make the directory of a broker's data."""
    cluster = urlsafe_b64encode(b"\0" + randbytes(15)).decode().rstrip("=")
    command = [*_java(), "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster]
    if guard is not None:
        login = f"SCRAM-SHA-256=[name={guard.user},password={guard.password}]"
        command += ["--add-scram", login]
    subprocess.run(
        [*command, "-c", str(properties)],
        capture_output=True,
        check=True,
        timeout=60,
    )


def _java() -> list[str]:
    """Return the command that runs a class of Kafka."""
    place = jars("org.apache.kafka", "kafka_2.13", VERSION)
    # It lives for minutes, in which the second compiler costs more than it gains.
    return [java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{place}/*"]
