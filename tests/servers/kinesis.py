"""A Kinesis service for tests: moto's, in the process, with what it leaves out of resharding.

In moto, a split or merge moves the records to the new shards, and a shard has no end. Here, as the
documentation of the service has it, records stay where they were written, new ones go to open
shards, and a closed shard that was read to its end has no further iterator.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import boto3
from moto.kinesis.models import KinesisBackend, Stream
from moto.server import ThreadedMotoServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REGION = "eu-central-1"
RIGHTS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
HASHES = 1 << 128


@dataclass(frozen=True)
class Kinesis:
    """A running service, and a client of it."""

    endpoint: str
    client: Any

    def create(self, name: str, shards: int) -> str:
        """Create a stream."""
        self.client.create_stream(StreamName=name, ShardCount=shards)
        return name

    def put(self, stream: str, records: Iterable[tuple[str, bytes]]) -> None:
        """Write records: pairs of a partition key and data."""
        entries = [{"PartitionKey": key, "Data": data} for key, data in records]
        for start in range(0, len(entries), 500):
            found = self.client.put_records(StreamName=stream, Records=entries[start : start + 500])
            assert found["FailedRecordCount"] == 0

    def open_shards(self, stream: str) -> list[tuple[int, str]]:
        """The first hash and the id of each shard that is written to, by the hash."""
        found = self.client.list_shards(StreamName=stream)["Shards"]
        parents = {shard.get(key) for shard in found for key in ("ParentShardId", "AdjacentParentShardId")}  # fmt: skip
        return sorted(
            (int(shard["HashKeyRange"]["StartingHashKey"]), shard["ShardId"])
            for shard in found
            if shard["ShardId"] not in parents
        )

    def split(self, stream: str, at: int = 0) -> None:
        """Split the open shard of a number in the middle."""
        shards = [*self.open_shards(stream), (HASHES, "")]
        middle = (shards[at][0] + shards[at + 1][0]) // 2
        self.client.split_shard(
            StreamName=stream, ShardToSplit=shards[at][1], NewStartingHashKey=str(middle)
        )

    def merge(self, stream: str, at: int = 0) -> None:
        """Merge the open shard of a number with the next one."""
        (_, first), (_, second) = self.open_shards(stream)[at : at + 2]
        self.client.merge_shards(StreamName=stream, ShardToMerge=first, AdjacentShardToMerge=second)


@contextmanager
def kinesis() -> Iterator[Kinesis]:
    """Run the service on a free port of the loopback address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with ExitStack() as closing:
        for target, name, replacement in (
            (Stream, "split_shard", _keeping_records(Stream.split_shard, 1)),
            (Stream, "merge_shards", _keeping_records(Stream.merge_shards, 2)),
            (Stream, "get_shard_for_key", _of_open(Stream.get_shard_for_key)),
            (KinesisBackend, "get_records", _ending(KinesisBackend.get_records)),
        ):
            closing.enter_context(patch.object(target, name, replacement))
        server.start()
        closing.callback(server.stop)
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        yield Kinesis(endpoint, boto3.client("kinesis", REGION, endpoint_url=endpoint, **RIGHTS))


def _keeping_records(original: Callable[..., None], shards: int) -> Callable[..., None]:
    def reshard(self: Any, *arguments: Any) -> None:
        closed = [self.shards[name] for name in arguments[:shards]]
        kept = [shard.records for shard in closed]
        for shard in closed:
            shard.records = OrderedDict()
        try:
            original(self, *arguments)
        finally:
            for shard, records in zip(closed, kept, strict=True):
                shard.records = records
                shard.is_open = shard.is_open and shards != 2

    return reshard


def _of_open(original: Callable[..., Any]) -> Callable[..., Any]:
    def find(self: Any, *arguments: Any) -> Any:
        everything = self.shards
        try:
            self.shards = {name: shard for name, shard in everything.items() if shard.is_open}
            return original(self, *arguments)
        finally:
            self.shards = everything

    return find


def _ending(original: Callable[..., Any]) -> Callable[..., Any]:
    def get(self: Any, arn: str | None, iterator: str, limit: int | None) -> Any:
        from moto.kinesis.utils import decompose_shard_iterator

        following, records, behind = original(self, arn, iterator, limit)
        name, shard_id, last = decompose_shard_iterator(following)
        shard = self.describe_stream(stream_arn=arn, stream_name=name).get_shard(shard_id)
        ended = not shard.is_open and int(last) >= shard.get_max_sequence_number()
        return (None if ended else following), records, behind

    return get
