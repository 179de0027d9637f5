"""Tables in S3, by a real server: what they have in the end, whatever is killed, stopped or wrong."""

from __future__ import annotations

import dataclasses
import logging
import sys
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from connectors.sink_histories import Histories, Row, begun, context, deliver, prove, table
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.execution.serving import CHANGE_COLUMNS
from headrace.io.connectors import aws, options, s3
from headrace.io.connectors.lake import delta as delta_sink
from headrace.io.connectors.lake import iceberg as iceberg_sink
from headrace.io.connectors.lake.iceberg_catalogues import CatalogueKind
from headrace.io.connectors.lake.tables import LakeTable
from headrace.io.connectors.options import SecretName
from headrace.io.connectors.sinks import TableContents
from headrace.types import Epoch
from length import choose
from servers.seaweed import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, WAREHOUSE, seaweed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.io.connectors import SinkContext
    from servers.seaweed import Seaweed

for library in ("deltalake", "pyiceberg", "boto3"):
    pytest.importorskip(library)

NEW: Row = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)
OTHER: Row = (2, *NEW[1:])
SECRETS = {
    "key": SECRET_KEY,
    "wrong": "canary-of-a-wrong-key",
    "client": f"{ACCESS_KEY}:{SECRET_KEY}",
    "wrong client": f"{ACCESS_KEY}:canary-of-a-wrong-key",
}
RIGHTS = {"region": REGION, "access_key": ACCESS_KEY, "secret_key": SecretName("key")}


@dataclasses.dataclass(frozen=True)
class Table:
    """One table in S3, of Delta or of Iceberg, and how it is read by those who have no Headrace."""

    kind: str
    server: Seaweed
    context: SinkContext
    options: Any

    @property
    def _module(self) -> Any:
        return delta_sink if self.kind == "delta" else iceberg_sink

    def given(self, **changes: Any) -> Table:
        """Return the table with other options."""
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **changes))

    def check(self, **changes: Any) -> None:
        self._module.check(self.options, dataclasses.replace(self.context, **changes))

    def opened(self) -> Any:
        return self._module.opened(self.options, self.context)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]]
        if self.kind == "delta":
            from deltalake import DeltaTable

            storage = {
                "AWS_ENDPOINT_URL": self.server.endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": REGION,
                "AWS_ACCESS_KEY_ID": ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            }
            found = (
                DeltaTable(self.options.path, storage_options=storage)
                .to_pyarrow_table()
                .to_pylist()
            )
            return found
        from pyiceberg.catalog.rest import RestCatalog

        catalogue = RestCatalog(
            "reader",
            **{
                "uri": self.server.catalogue,
                "warehouse": WAREHOUSE,
                "credential": SECRETS["client"],
                "oauth2-server-uri": f"{self.server.catalogue}/v1/oauth/tokens",
                "s3.endpoint": self.server.endpoint,
                "s3.region": REGION,
                "s3.access-key-id": ACCESS_KEY,
                "s3.secret-access-key": SECRET_KEY,
            },
        )
        found = catalogue.load_table(self.options.table).scan().to_arrow().to_pylist()
        catalogue.close()
        return found

    def read(self) -> Counter[Row]:
        """Return the rows; of a table of changes, their sum: what came twice would count twice."""
        total: Counter[Row] = Counter()
        for found in self.rows():
            weight = 1
            if self.options.mode is TableContents.APPEND:
                op, weight, _ = (found.pop(name) for name in CHANGE_COLUMNS)
                assert (op in ("+I", "+U")) == (weight > 0)
            total[tuple(found.values())] += weight
        return Counter({each: weight for each, weight in total.items() if weight})


def in_lake(
    kind: str, server: Seaweed, directory: Path, mode: TableContents = TableContents.UPSERT
) -> Table:
    name = f"t{uuid4().hex[:12]}"
    shared = {**RIGHTS, "endpoint": server.endpoint, "mode": mode}
    options: Any
    if kind == "delta":
        options = LakeTable(path=f"s3://{BUCKET}/tables/{name}", **shared)
    else:
        options = iceberg_sink.IcebergTable(
            catalog=CatalogueKind.REST,
            uri=server.catalogue,
            warehouse=WAREHOUSE,
            credential=SecretName("client"),
            table=f"shop.{name}",
            **shared,
        )
    return Table(kind, server, context(directory, SECRETS), options)


@pytest.fixture(params=["delta", "iceberg"])
def made(request: pytest.FixtureRequest, lake: Seaweed, tmp_path: Path) -> Table:
    return in_lake(request.param, lake, tmp_path)


@pytest.mark.parametrize("mode", choose([TableContents.UPSERT], list(TableContents)))
def test_a_table_has_the_view_however_often_the_process_ends(
    made: Table, mode: TableContents
) -> None:
    found = made.given(mode=mode)
    found.check()
    settings = DeliverySettings(part_rows=6, joins=True)
    outlived = prove(found.opened, found.read, epochs=4, kills=3, settings=settings)
    assert found.opened().durable() == outlived.record.delivered
    stored = found.opened().stored()
    if mode is TableContents.APPEND:
        assert stored is None
    else:
        rows = Counter(tuple(each.values()) for part in stored for each in part.to_pylist())
        assert rows == found.read()


@pytest.mark.long
@pytest.mark.parametrize("mode", TableContents)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_table_has_the_view_after_long_histories(kind, mode, seed, tmp_path) -> None:
    """The server is killed as well, and comes back."""
    with seaweed(tmp_path / "s3") as server:
        found = in_lake(kind, server, tmp_path, mode)
        found.check()

        def killed(number: int) -> None:
            if number % 4 == 3:
                server.stop(crash=True)
                server.start()

        settings = DeliverySettings(part_rows=6, joins=bool(seed % 2))
        prove(found.opened, found.read, seed=seed, settings=settings, killed=killed)


def test_of_two_writers_the_later_one_fails(made: Table) -> None:
    for mode in TableContents:
        found = dataclasses.replace(
            made, options=in_lake(made.kind, made.server, made.context.directory, mode).options
        )
        found.opened().write(Epoch(1), [table([(NEW, 1)])])
        behind, first = found.opened(), found.opened()
        assert behind.durable() == first.durable() == 1
        later = table([(OTHER, 1)])

        def overtaken(first=first, later=later) -> Iterator[Any]:
            other = threading.Thread(target=first.write, args=(Epoch(2), [later]))
            other.start()
            other.join()
            yield later

        with pytest.raises(HeadraceError, match="cannot be written to") as caught:
            behind.write(Epoch(2), overtaken())
        assert caught.value.code is Code.UNAVAILABLE
        with pytest.raises(HeadraceError, match="has changed since it was last looked at"):
            behind.write(Epoch(2), [later])
        assert found.read() == Counter([NEW, OTHER])
        assert behind.durable() == 2


@pytest.mark.long
def test_of_writers_at_the_same_moment_one_commits(made: Table) -> None:
    made.opened().write(Epoch(1), [table([(NEW, 1)])])
    for epoch in range(2, 5):
        writers = [made.opened() for _ in range(3)]
        assert {writer.durable() for writer in writers} == {epoch - 1}
        together, won = threading.Barrier(len(writers)), []

        def write(writer: Any, epoch: int = epoch, together=together, won=won) -> None:
            def parts() -> Iterator[Any]:
                together.wait(20)
                yield table([((epoch, *NEW[1:]), 1)])

            try:
                writer.write(Epoch(epoch), parts())
            except HeadraceError as error:
                assert error.code is Code.UNAVAILABLE, error  # noqa: PT017 - one does not fail
            else:
                won.append(epoch)

        threads = [threading.Thread(target=write, args=(each,)) for each in writers]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert won == [epoch]
    assert made.read() == Counter([NEW, *((n, *NEW[1:]) for n in range(2, 5))])


WRONG: dict[str, list[dict[str, Any]]] = {
    "delta": [{"secret_key": "wrong"}, {"access_key": "AKIANOBODY"}],
    "iceberg": [{"secret_key": "wrong"}, {"credential": "wrong client"}],
}


def test_wrong_credentials_are_said_and_shown_nowhere(made: Table, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    for wrong in WRONG[made.kind]:
        with pytest.raises(HeadraceError, match="cannot be written to") as caught:
            made.given(**wrong).check()
        assert caught.value.code is Code.INVALID, caught.value
        assert "Correct the credentials" in (caught.value.hint or "")
        _require_hidden(str(caught.value), repr(made.given(**wrong).opened()))
    _require_hidden(
        *(
            f"{record.getMessage()}"
            for record in caplog.records
            if record.name.startswith("headrace")
        )
    )


def test_a_secret_that_a_catalogue_repeats_is_not_shown(lake: Seaweed, tmp_path) -> None:
    found = in_lake("iceberg", lake, tmp_path).given(secret_key=SecretName("wrong"))
    for said in (
        f"Bearer {SECRETS['client']}: no",
        f"client_secret={SECRET_KEY}",
        SECRETS["wrong"],
    ):
        error = found.opened()._failed(ValueError(said))
        assert "Iceberg says" in (error.detail or "")
        _require_hidden(str(error))


def test_credentials_that_become_wrong_lose_nothing(made: Table) -> None:
    made.check()
    histories = Histories()
    histories.change({1: NEW})
    delivery = begun(histories).delivery(made.opened(), DeliverySettings())
    delivery.advance()
    histories.change({2: OTHER})
    for wrong in WRONG[made.kind]:
        delivery.change(made.given(**wrong).opened(), DeliverySettings())
        with pytest.raises(HeadraceError, match="cannot be written to") as caught:
            delivery.advance()
        assert caught.value.code is Code.INVALID, caught.value
        _require_hidden(str(caught.value))
    assert made.read() == Counter([NEW])
    delivery.change(made.opened(), DeliverySettings())
    delivery.advance()
    assert made.read() == Counter([NEW, OTHER])


def _require_hidden(*texts: str) -> None:
    for text in texts:
        assert not any(secret.rpartition(":")[2] in text for secret in SECRETS.values()), text


@pytest.mark.long
def test_a_server_that_stops_and_comes_back_loses_nothing(tmp_path) -> None:
    with seaweed(tmp_path / "s3") as server:
        found = [in_lake(kind, server, tmp_path) for kind in ("delta", "iceberg")]
        histories = Histories()
        histories.change({1: NEW})
        deliveries = [
            begun(histories).delivery(each.opened(), DeliverySettings()) for each in found
        ]
        for each in deliveries:
            each.advance()
        server.stop(crash=True)
        histories.change({2: OTHER})
        for each in deliveries:
            with pytest.raises(HeadraceError, match="cannot be written to") as caught:
                each.advance()
            assert caught.value.code is Code.UNAVAILABLE
        for each in found:
            with pytest.raises(HeadraceError, match="cannot be written to") as caught:
                each.check()
            assert caught.value.code is Code.UNAVAILABLE
        server.start()
        for each, table_ in zip(deliveries, found, strict=True):
            deliver(each)
            assert table_.read() == Counter([NEW, OTHER])


def test_a_place_that_is_not_there_is_refused_with_a_hint(lake: Seaweed, tmp_path) -> None:
    delta = in_lake("delta", lake, tmp_path).given(path="s3://nobodys-bucket/t")
    iceberg = in_lake("iceberg", lake, tmp_path).given(warehouse="nobodys-warehouse")
    for found, hint in ((delta, "Create the bucket"), (iceberg, "Create the warehouse")):
        with pytest.raises(HeadraceError, match="cannot be written to") as caught:
            found.check()
        assert caught.value.code is Code.INVALID
        assert hint in (caught.value.hint or "")
    with pytest.raises(HeadraceError, match="cannot be written to") as caught:
        delta.opened().durable()
    assert caught.value.code is Code.INVALID
    assert "Create the bucket" in (caught.value.hint or "")


def test_a_prefix_with_objects_is_refused(lake: Seaweed, tmp_path) -> None:
    found = in_lake("delta", lake, tmp_path)
    for _ in range(2):
        found.check()
    prefix = found.options.path.removeprefix(f"s3://{BUCKET}/")
    assert not lake.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents")
    found.opened().write(Epoch(1), [table([(NEW, 1)])])
    for path in (found.options.path, f"{found.options.path}/within/it"):
        with pytest.raises(HeadraceError) as caught:
            found.given(path=path).check()
        assert caught.value.code is Code.CONFLICT
    found.check(exists=True)
    found.given(path=f"{found.options.path}-2").check()


def test_a_store_that_writes_over_objects_is_refused(lake: Seaweed, tmp_path, monkeypatch) -> None:
    """Such are those that do not know If-None-Match: of two commits, both would be taken."""
    make = aws.client

    def ignorant(*given: Any, **named: Any) -> Any:
        def drop(params: dict[str, Any], **_: Any) -> None:
            params["headers"].pop("If-None-Match")

        client = make(*given, **named)
        client.meta.events.register("before-call.s3.PutObject", drop)
        return client

    monkeypatch.setattr(aws, "client", ignorant)
    with pytest.raises(HeadraceError, match="cannot be written to") as caught:
        in_lake("delta", lake, tmp_path).check()
    assert caught.value.code is Code.UNSUPPORTED
    assert "If-None-Match" in (caught.value.detail or "")


def test_an_address_changes_only_if_it_leads_to_what_was_written(made: Table) -> None:
    for _ in range(2):  # also of a table that is not there, and is not made
        with pytest.raises(
            HeadraceError, match="does not contain what this sink has written"
        ) as caught:
            made.check(exists=True, moved=Epoch(3))
        assert caught.value.code is Code.CONFLICT
        with pytest.raises(Exception, match=r"(?i)no such|not.*exist|no files|not.*found"):
            made.rows()
    made.check()
    with pytest.raises(
        HeadraceError, match="does not contain what this sink has written"
    ) as caught:
        made.check(exists=True, moved=Epoch(3))
    assert caught.value.code is Code.CONFLICT
    made.opened().write(Epoch(3), [table([(NEW, 1)])])
    made.check(exists=True, moved=Epoch(3))


def test_a_table_that_is_gone_is_said_to_have_lost_changes(lake: Seaweed, tmp_path) -> None:
    found = in_lake("delta", lake, tmp_path)
    histories = Histories()
    histories.change({1: NEW})
    delivery = begun(histories).delivery(found.opened(), DeliverySettings())
    delivery.advance()
    client, prefix = lake.client(), found.options.path.removeprefix(f"s3://{BUCKET}/")
    for each in client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")["Contents"]:
        client.delete_object(Bucket=BUCKET, Key=each["Key"])
    histories.change({2: OTHER})
    for _ in range(2):
        with pytest.raises(HeadraceError, match="has lost changes") as caught:
            delivery.advance()
        assert caught.value.code is Code.CONFLICT


def test_a_table_that_is_reset_is_empty(made: Table) -> None:
    writer = made.opened()
    writer.write(Epoch(7), [table([(NEW, 1)])])
    writer.clear()
    assert writer.durable() is None
    assert made.rows() == []
    writer.write(Epoch(9), [table([(OTHER, 1)])])
    assert (writer.durable(), made.read()) == (9, Counter([OTHER]))


def test_requests_to_a_catalogue_may_be_signed(lake: Seaweed, tmp_path) -> None:
    found = in_lake("iceberg", lake, tmp_path).given(credential=None, signing_name="s3tables")
    found.check()
    found.opened().write(Epoch(1), [table([(NEW, 1)])])
    assert found.read() == Counter([NEW])
    with pytest.raises(HeadraceError, match="cannot be written to") as caught:
        found.given(**WRONG["iceberg"][0]).check()
    assert caught.value.code is Code.INVALID
    _require_hidden(str(caught.value))


def test_the_environments_credentials_are_used_by_default(
    lake: Seaweed, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    for kind in ("delta", "iceberg"):
        found = in_lake(kind, lake, tmp_path).given(access_key=None, secret_key=None)
        found.check()
        found.opened().write(Epoch(1), [table([(NEW, 1)])])
        assert found.read() == Counter([NEW])


def test_a_missing_library_is_named_with_its_extra(lake: Seaweed, tmp_path, monkeypatch) -> None:
    for kind, module, extra in (
        ("delta", "boto3", "s3"),
        ("delta", "deltalake", "delta"),
        ("iceberg", "pyiceberg.catalog.rest", "iceberg"),
    ):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            with pytest.raises(HeadraceError, match="is not installed") as caught:
                in_lake(kind, lake, tmp_path).check()
        assert f'pip install "headrace[{extra}]"' in (caught.value.hint or "")


def test_a_location_is_a_bucket_and_a_prefix() -> None:
    assert s3.location("s3a://b-1.x/a/b=1/") == "s3://b-1.x/a/b=1"
    for wrong in (
        "s3://b",
        "s3://b/",
        "s3://B/x",
        "s3://bkt/a//b",
        "s3://bkt/../x",
        "s3://bkt/a\\b",
    ):
        with pytest.raises(HeadraceError, match="is not a location in S3") as caught:
            s3.location(wrong)
        assert caught.value.code is Code.INVALID
    with pytest.raises(HeadraceError, match="sinks into gs:// are not supported"):
        s3.location("gs://bucket/x")


@pytest.mark.parametrize(
    ("cls", "given", "primary"),
    [
        (LakeTable, {"path": "t", "region": "x"}, 'option "region" is of S3'),
        (LakeTable, {"path": "s3://bkt/t", "access_key": "x"}, "need each other"),
        (iceberg_sink.IcebergTable, {}, "a catalogue of SQL has no path"),
        (iceberg_sink.IcebergTable, {"catalog": "rest"}, "a catalogue of REST has no uri"),
        (iceberg_sink.IcebergTable, {"catalog": "rest", "uri": "http://c", "path": "t"}, "has a path"),
        (iceberg_sink.IcebergTable, {"path": "t", "endpoint": "http://c"}, 'option "endpoint" is of S3'),
        (iceberg_sink.IcebergTable, {"path": "t", "uri": "http://c"}, 'option "uri" only applies to a catalogue of REST'),
        (iceberg_sink.IcebergTable, {"path": "s3://bkt/t"}, "a catalogue of SQL in an object store"),
        (iceberg_sink.IcebergTable, {"catalog": "rest", "uri": "http://u:p@c"}, "without a user or password"),
    ],
)  # fmt: skip
def test_options_that_do_not_belong_together_are_refused(
    cls: Any, given: dict[str, str], primary: str
) -> None:
    if cls is iceberg_sink.IcebergTable:
        given = {"table": "a.b", **given}
    pairs = [options.Given(k, v, secret=k == "secret_key") for k, v in given.items()]
    with pytest.raises(HeadraceError, match=primary):
        options.read_options(cls, pairs, "a sink")


def test_what_libraries_say_becomes_a_line() -> None:
    chain = "Generic S3 error\n   \x1b[31m↳\x1b[0m Error performing GET http://h\n  \x1b[31m↳\x1b[0m refused (os error 111)\n"
    assert s3.reason(chain) == "Generic S3 error: refused (os error 111)"
    xml = 'Generic\n <?xml version="1.0"?>\n<Error><Code>NoSuchBucket</Code><Message>It is not.</Message></Error>'
    assert s3.reason(xml) == "NoSuchBucket: It is not"
    assert s3.is_missing(s3.reason(xml))
    arrow = "When x: AWS Error ACCESS_DENIED during y: Access Denied. (Request ID: 18EBB4C1DA)"
    assert s3.reason(arrow) == "When x: AWS Error ACCESS_DENIED during y: Access Denied"
    assert s3.is_denied(s3.reason(arrow))
    assert s3.is_denied("InvalidAccessKeyId: no such id")
    assert not s3.is_denied("Connection refused")
