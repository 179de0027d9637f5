"""What all tests share."""

from __future__ import annotations

import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import headrace
from beyond import Beyond, beyond
from harness import Oracle
from length import choose
from servers.kafka import Kafka, kafka
from servers.machine import Unavailable
from servers.postgres import Postgres, postgres
from servers.redis import Redis, redis_server
from servers.schema_registry import registry as schema_registry
from servers.seaweed import Seaweed, seaweed
from sessions import PARTITIONS, short_session

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pyspark.sql import SparkSession

    from servers.cassandra import Cassandra
    from servers.dynamodb import DynamoDB
    from servers.kinesis import Kinesis

pytest_plugins = ["shards"]

# Deterministic, so that a red build is red again; no deadline, for machines that are shared.
settings.register_profile(
    "laws",
    max_examples=choose(10, 200),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("search", parent=settings.get_profile("laws"), max_examples=2000)
settings.load_profile("laws")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect thousands of tests, which all stay, without looking among them for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the shared Spark session, so that `make quick` can leave it out.

    And what uses the schema registry: it is built from its source, which takes longer than they do.
    """
    for item in items:
        names = getattr(item, "fixturenames", ())
        if "spark" in names:
            item.add_marker(pytest.mark.spark)
        if "registry" in names:
            item.add_marker(pytest.mark.long)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make suites-cluster`."""
    parser.addoption(
        "--cluster",
        action="store_true",
        help="run what asks for the oracle on a cluster of Spark, an object store and PostgreSQL",
    )


@pytest.fixture(scope="session")
def elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Beyond | None]:
    """Where the oracle's databases lie with ``--cluster``; None: on this machine."""
    if not request.config.getoption("--cluster", default=False):
        yield None
        return
    with beyond(tmp_path_factory.getbasetemp()) as running:
        yield running


@pytest.fixture(scope="session")
def spark(elsewhere: Beyond | None) -> Iterator[SparkSession]:
    """The one Spark session of all tests: starting it costs more than most of them."""
    session = short_session() if elsewhere is None else short_session(elsewhere.spark.url)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A Kafka broker for all tests of a process, each with topics of its own."""
    pytest.importorskip("confluent_kafka")
    try:
        with kafka(tmp_path_factory.mktemp("kafka")) as running:
            yield running
    except Unavailable as reason:
        pytest.skip(f"no Kafka: {reason}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL server for all tests of a process, each with a database of its own.

    Its directory is not one of pytest's, which others than their owner may not enter.
    """
    pytest.importorskip("psycopg")
    try:
        with TemporaryDirectory() as place, postgres(Path(place) / "postgres") as running:
            yield running
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL: {reason}")


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    """The URL of an empty database of PostgreSQL."""
    return postgres_server.empty()


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """The URL of a schema registry for all tests of a process, each with subjects of its own."""
    try:
        with schema_registry() as url:
            yield url
    except Unavailable as reason:
        pytest.skip(f"no schema registry: {reason}")


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A Redis server for all tests of a process, each with keys of its own."""
    pytest.importorskip("redis")
    try:
        with redis_server(tmp_path_factory.mktemp("redis")) as running:
            yield running
    except Unavailable as reason:
        pytest.skip(f"no Redis: {reason}")


@pytest.fixture(scope="session")
def cassandra_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A node of Cassandra with a keyspace ``k``, for the long tests of a process."""
    pytest.importorskip("cassandra")
    from servers.cassandra import cassandra

    keyspace = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    try:
        with cassandra(tmp_path_factory.mktemp("cassandra")) as running:
            running.query(f"CREATE KEYSPACE k WITH replication = {keyspace}")
            yield running
    except Unavailable as reason:
        pytest.skip(f"no Cassandra: {reason}")


@pytest.fixture(scope="session")
def dynamo() -> Iterator[DynamoDB]:
    """A DynamoDB service for all tests of a process, each with tables of its own."""
    pytest.importorskip("moto")
    from servers.dynamodb import dynamodb

    with dynamodb() as running:
        yield running


@pytest.fixture(scope="session")
def kinesis_server() -> Iterator[Kinesis]:
    """A Kinesis service for all tests of a process, each with streams of its own."""
    pytest.importorskip("moto")
    from servers.kinesis import kinesis

    with kinesis() as running:
        yield running


@pytest.fixture(scope="session")
def lake() -> Iterator[Seaweed]:
    """S3 and a catalogue of Iceberg for all tests of a process, each with names of its own."""
    pytest.importorskip("boto3")
    try:
        with TemporaryDirectory() as place, seaweed(Path(place) / "s3") as running:
            yield running
    except Unavailable as reason:
        pytest.skip(f"no S3: {reason}")


@pytest.fixture
def db(tmp_path: Path, spark: SparkSession) -> Iterator[headrace.Database]:
    """An empty database that makes epochs only when something waits for them."""
    with headrace.connect(
        tmp_path / "db", spark=spark, continuous=False, partitions=PARTITIONS
    ) as opened:
        yield opened


@pytest.fixture
def oracle(
    tmp_path: Path, spark: SparkSession, elsewhere: Beyond | None
) -> Iterator[Callable[..., Oracle]]:
    """Make oracles over empty databases, each settled by a last look when the test has passed."""
    made: list[Oracle] = []

    def make(**settings: object) -> Oracle:
        given = {} if elsewhere is None else elsewhere.settings()
        made.append(Oracle(spark, tmp_path / f"db{len(made)}", **given | settings))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture
def opened(tmp_path: Path, spark: SparkSession) -> Iterator[Callable[[], headrace.Database]]:
    """Open one database again and again; all are closed when the test has ended."""
    made: list[headrace.Database] = []

    def connect() -> headrace.Database:
        made.append(headrace.connect(tmp_path / "d", spark=spark, partitions=2))
        return made[-1]

    yield connect
    for db in made:
        db.close()
