"""Files of changes in S3, by a real server: each change is in them once, whatever is killed."""

from __future__ import annotations

import dataclasses
import io
import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from connectors.sink_histories import Histories, Row, begun, context, deliver, prove, table
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors.files.change_files import OutputFormat
from headrace.io.connectors.files.sink import Content, Options
from headrace.io.connectors.lake import snapshots as snapshot_sink
from headrace.io.connectors.options import SecretName
from headrace.types import Epoch
from length import each
from servers.seaweed import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, seaweed

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.io.connectors import SinkContext
    from servers.seaweed import Seaweed

pytest.importorskip("boto3")

NEW: Row = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)
OTHER: Row = (2, *NEW[1:])


@dataclasses.dataclass(frozen=True)
class Files:
    """The objects below a prefix of its own."""

    server: Seaweed
    context: SinkContext
    options: Options

    def given(self, **changes: Any) -> Files:
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **changes))

    def check(self, **changes: Any) -> None:
        snapshot_sink.check(self.options, dataclasses.replace(self.context, **changes))

    def opened(self) -> Any:
        return snapshot_sink.opened(self.options, self.context)

    def names(self) -> list[str]:
        prefix = self.options.path.removeprefix(f"s3://{BUCKET}/") + "/"
        pages = self.server.client().get_paginator("list_objects_v2")
        found = [
            o["Key"]
            for p in pages.paginate(Bucket=BUCKET, Prefix=prefix)
            for o in p.get("Contents", ())
        ]
        return [each.removeprefix(prefix) for each in found]

    def bodies(self) -> list[bytes]:
        prefix, client = self.options.path.removeprefix(f"s3://{BUCKET}/"), self.server.client()
        return [
            client.get_object(Bucket=BUCKET, Key=f"{prefix}/{n}")["Body"].read()
            for n in self.names()
        ]

    def read(self) -> Counter[Row]:
        """Return the sum of the changes in files of Parquet."""
        total: Counter[Row] = Counter()
        for body in self.bodies():
            for change in pq.read_table(io.BytesIO(body)).to_pylist():
                weight = change.pop(WEIGHT)
                assert (change.pop("__op") in ("+I", "+U")) == (weight > 0)
                total[tuple(change.values())] += weight
        return Counter({each: weight for each, weight in total.items() if weight})


@pytest.fixture
def files(lake: Seaweed, tmp_path: Path) -> Files:
    return in_lake(lake, tmp_path)


def in_lake(server: Seaweed, directory: Path) -> Files:
    options = Options(
        path=f"s3://{BUCKET}/files/{uuid4().hex[:12]}",
        format=OutputFormat.PARQUET,
        region=REGION,
        endpoint=server.endpoint,
        access_key=ACCESS_KEY,
        secret_key=SecretName("key"),
    )
    return Files(server, context(directory, {"key": SECRET_KEY, "wrong": "canary-key"}), options)


@pytest.mark.parametrize("joins", each(2, [True, False]))
def test_the_files_sum_up_to_the_view_however_often_the_process_ends(
    files: Files, *, joins: bool
) -> None:
    files.check()
    settings = DeliverySettings(part_rows=6, joins=joins)
    outlived = prove(files.opened, files.read, epochs=8, kills=6, settings=settings)
    assert files.opened().durable() == outlived.record.delivered
    assert files.names() == [f"{n:020d}.parquet" for n in range(1, len(files.names()) + 1)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 4))
def test_the_files_sum_up_to_the_view_after_long_histories(seed: int, tmp_path: Path) -> None:
    """The server is killed as well, and comes back."""
    with seaweed(tmp_path / "s3") as server:
        files = in_lake(server, tmp_path)

        def killed(number: int) -> None:
            if number % 4 == 3:
                server.stop(crash=True)
                server.start()

        settings = DeliverySettings(part_rows=6, joins=bool(seed % 2))
        prove(files.opened, files.read, seed=seed, settings=settings, killed=killed)


def test_what_a_killed_process_has_sent_and_its_successor_do_not_both_count(files: Files) -> None:
    """The one joins two epochs, the other has written the first of them; the later of both fails."""
    for late_first in (False, True):
        found = files.given(path=f"{files.options.path}-{late_first}")
        found.opened().write(Epoch(1), [table([(NEW, 1)])])
        late, successor = found.opened(), found.opened()
        assert late.durable() == successor.durable() == 1
        writes = [
            (late, Epoch(2), [table([(OTHER, 1)])]),
            (successor, Epoch(3), [table([(OTHER, 1), (NEW, -1)])]),
        ]
        if not late_first:
            writes.reverse()
        (first, epoch, parts), (second, behind, others) = writes
        first.write(epoch, parts)
        with pytest.raises(
            HeadraceError, match="has changed since it was last looked at"
        ) as caught:
            second.write(behind, others)
        assert caught.value.code is Code.UNAVAILABLE
        assert second.durable() == epoch
        assert found.names() == [f"{n:020d}.parquet" for n in (1, 2)]
        assert found.read()[OTHER] == 1


def test_the_formats_are_those_of_files(files: Files) -> None:
    lines = files.given(path=f"{files.options.path}-j", format=OutputFormat.JSON)
    lines.opened().write(Epoch(7), [table([(NEW, 1)])])
    (line,) = [json.loads(each) for body in lines.bodies() for each in body.splitlines()]
    assert (line["epoch"], line["op"], line["weight"], line["row"]["id"]) == (7, "+I", 1, 1)
    text = files.given(path=f"{files.options.path}-c", format=OutputFormat.CSV)
    text.opened().write(Epoch(7), [table([(NEW, 1)])])
    assert text.bodies()[0].splitlines()[0] == b'"id","name","amount","at","ok","__weight","__op"'
    assert (lines.names(), text.names()) == (
        ["00000000000000000001.jsonl"],
        ["00000000000000000001.csv"],
    )


def test_wrong_credentials_and_a_lost_bucket_lose_nothing(files: Files) -> None:
    files.check()
    histories = Histories()
    histories.change({1: NEW})
    delivery = begun(histories).delivery(files.opened(), DeliverySettings())
    delivery.advance()
    histories.change({2: OTHER})
    wrong = files.given(secret_key=SecretName("wrong"))
    nowhere = files.given(path="s3://nobodys-bucket/t")
    down = files.given(endpoint="http://127.0.0.1:1")
    for other, code, hint in (
        (wrong, Code.INVALID, "Correct the credentials"),
        (nowhere, Code.INVALID, "Create the bucket"),
        (down, Code.UNAVAILABLE, "Correct the region or the endpoint"),
    ):
        for act in (other.check, other.opened().durable, delivery.advance):
            delivery.change(other.opened(), DeliverySettings())
            with pytest.raises(HeadraceError, match="the files at") as caught:
                act()
            assert caught.value.code is code, caught.value
            assert hint in (caught.value.hint or "")
            assert "canary" not in str(caught.value)
    delivery.change(files.opened(), DeliverySettings())
    deliver(delivery)
    assert files.read() == Counter([NEW, OTHER])


def test_a_prefix_is_of_one_sink(files: Files) -> None:
    for _ in range(2):
        files.check()
    assert files.names() == []
    files.opened().write(Epoch(1), [table([(NEW, 1)])])
    with pytest.raises(HeadraceError, match="has objects") as caught:
        files.check()
    assert caught.value.code is Code.CONFLICT
    other = dataclasses.replace(
        files, context=dataclasses.replace(files.context, identity="histories/8")
    )
    with pytest.raises(HeadraceError, match="belongs to another sink") as caught:
        other.opened().durable()
    assert caught.value.code is Code.CONFLICT
    files.check(exists=True, moved=Epoch(1))
    with pytest.raises(HeadraceError, match="does not contain what this sink has written"):
        files.check(exists=True, moved=Epoch(2))


def test_what_takes_several_objects_is_refused(files: Files) -> None:
    for changes in ({"partition_by": "ok"}, {"content": Content.SNAPSHOT}):
        with pytest.raises(HeadraceError, match="of files in S3 is not supported") as caught:
            files.given(**changes).check()
        assert caught.value.code is Code.UNSUPPORTED
        assert "'delta'" in (caught.value.hint or "")


def test_files_that_are_reset_begin_anew(files: Files) -> None:
    writer = files.opened()
    writer.write(Epoch(7), [table([(NEW, 1)])])
    writer.write(Epoch(8), [table([(NEW, -1)])])
    writer.clear()
    assert writer.durable() is None
    assert files.names() == []
    writer.write(Epoch(9), [table([(OTHER, 1)])])
    assert (files.opened().durable(), files.read()) == (9, Counter([OTHER]))
