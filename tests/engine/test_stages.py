"""Stages of wide steps: parcels, and the nodes that rows flow through, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.algebra.spine import partition_of
from headrace.execution.engine.wide import nodes
from headrace.execution.engine.wide.nodes import (
    PARTITION,
    ArrivedTables,
    ConcatenatedTables,
    FilteredTables,
    ProjectedTables,
    Sending,
    SourceTables,
    StageRun,
    TaskTables,
    Vectors,
    gathered,
    opened,
)
from headrace.planning.catalyst.vectors import DoubtError
from headrace.planning.catalyst.vectors.vector import Call, InputColumn

LONG = pa.int64()
SCHEMA = pa.schema([("h", LONG), ("t", pa.string()), ("n", LONG)])


def numbered(hashes: list[int], first: int = 0) -> pa.Table:
    texts: list[str | None] = [
        None if i % 5 == 0 else f"row {i}" for i in range(first, first + len(hashes))
    ]
    return pa.table({"h": hashes, "t": texts, "n": [1] * len(hashes)}, schema=SCHEMA)


def rows_of(tables) -> list[tuple]:
    return sorted((tuple(row.values()) for table in tables for row in table.to_pylist()), key=repr)


def run(*tables: pa.Table, partition: int | None = None, repeated=()) -> StageRun:
    return StageRun(iter(tables), partition, frozenset(repeated))


def over(call, *columns: int) -> Vectors:
    vector = Call(LONG, call, tuple(InputColumn(LONG, i) for i in columns))
    return Vectors((vector,), pa.schema([("e0", LONG)]))


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_rows_arrive_in_the_partition_that_owns_their_hash(partitions, monkeypatch):
    monkeypatch.setattr(nodes, "MOST_ROWS", 40)
    random = np.random.default_rng(7)
    hashes = random.integers(-(2**63), 2**63 - 1, 150)
    given = [numbered(hashes[i : i + 30].tolist(), i) for i in range(0, 150, 30)]
    sent = list(Sending(0, partitions).parcels(given))
    assert all(batch.num_rows == 1 for batch in sent)
    assert len(sent) > partitions
    arrived: list[pa.Table] = []
    for batch in sent:
        (table,) = opened([batch])
        owners = partition_of(table.column(0).to_numpy(), partitions)
        assert set(owners) == set(batch.column(PARTITION).to_pylist())
        arrived.append(table)
    assert rows_of(t.rename_columns(["h", "t", "n"]) for t in arrived) == rows_of(given)


def test_several_parcels_in_one_batch_are_read_one_by_one():
    sent = list(Sending(0, 1).parcels([numbered([3, 1])])) * 2
    together = pa.Table.from_batches(sent).combine_chunks().to_batches()
    assert len(together) == 1
    assert [table.num_rows for table in opened(together)] == [2, 2]


def test_small_tables_are_gathered_and_large_ones_are_not_held_back(monkeypatch):
    monkeypatch.setattr(nodes, "MOST_ROWS", 5)
    sizes = [0, 2, 2, 2, 9, 1, 0]
    tables = (numbered(list(range(size))) for size in sizes)
    assert [table.num_rows for table in gathered(tables)] == [4, 2, 9, 1]


def test_a_table_of_many_bytes_is_divided(monkeypatch):
    table = numbered(list(range(100)))
    monkeypatch.setattr(nodes, "MOST_BYTES", -(-table.nbytes // 4))
    found = list(gathered([table, numbered([])]))
    assert [part.num_rows for part in found] == [25, 25, 25, 25]
    assert rows_of(found) == rows_of([table])


def test_rows_flow_through_the_nodes_of_a_stage():
    doubled = ProjectedTables(ArrivedTables(), (0, 3), over(pc.add, 0, 0))
    large = FilteredTables(
        doubled, Vectors((Call(pa.bool_(), _is_large, (InputColumn(LONG, 1),)),), _B)
    )
    found = list(run(numbered([1, 5]), numbered([7, 2])).rows(large))
    assert rows_of(found) == [(5, 10), (7, 14)]


_B = pa.schema([("e0", pa.bool_())])


def _is_large(values):
    return pc.greater(values, 9)


def test_a_node_that_is_read_twice_is_computed_once():
    calls = []

    def task(batches):
        calls.append([batch.num_rows for batch in batches])
        yield from numbered([4, 6]).to_batches()

    stepped = TaskTables(ArrivedTables(), ("a", "b", "c"), task, SCHEMA)
    both = ConcatenatedTables(
        (ProjectedTables(stepped, (0,), None), ProjectedTables(stepped, (2,), None))
    )
    assert rows_of(run(numbered([1]), repeated=[stepped]).rows(both)) == [(1,), (1,), (4,), (6,)]
    assert calls == [[1]]


def test_a_task_is_called_even_if_no_rows_arrive():
    called = []

    def task(batches):
        called.append(list(batches))
        yield from ()

    assert not list(run().rows(TaskTables(ArrivedTables(), ("a",), task, SCHEMA)))
    assert called == [[]]


def test_a_source_reads_only_in_partitions_that_it_has():
    def task(batches):
        for batch in batches:
            yield from numbered([batch.column(0)[0].as_py()]).to_batches()

    source = SourceTables(task, 2, SCHEMA)
    found = [rows_of(run(partition=i).rows(source)) for i in range(3)]
    assert [[row[0] for row in rows] for rows in found] == [[0], [1], []]


def test_rows_of_several_nodes_have_the_types_of_the_first():
    narrow = pa.table({"other": pa.array([3], pa.int32())})
    wide = pa.table({"value": pa.array([1, 2], LONG)})
    assert [t.schema for t in nodes.aligned([wide, narrow])] == [pa.schema([("value", LONG)])] * 2


def test_a_value_in_doubt_ends_the_stage():
    overflowing = ProjectedTables(ArrivedTables(), (0, 3), over(pc.add_checked, 0, 0))
    with pytest.raises(DoubtError):
        list(run(numbered([1, 2**62])).rows(overflowing))
