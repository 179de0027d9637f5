"""A stored program is read again only as it was written, and only for the same definitions."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import IntegerType

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.narrow import stored
from headrace.execution.engine.narrow.evaluated import ComputedColumns, InCatalyst, UnplannedError
from headrace.execution.engine.narrow.nodes import DeltaLeaf, Filtered, JobNode, Projected, StepRun
from headrace.execution.engine.narrow.stored import ProgramFiles, StoredProgram
from headrace.execution.runtime.ports import StepPlan
from headrace.planning.catalog import PlainView, Stream, View
from headrace.planning.catalyst.vectors import InputRows
from headrace.planning.catalyst.vectors.vector import Call, Constant, InputColumn
from headrace.types import Column, RelationId, Schema

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.execution.engine.narrow.nodes import RowsNode
    from headrace.planning.catalog import Relation

SCHEMA = Schema((Column("a", IntegerType()),))
ROWS = pa.schema([pa.field("c0", pa.int32()), pa.field("__weight", pa.int64())])
ID = RelationId(3)
STREAM = Stream(RelationId(1), "s", SCHEMA)
PLAIN = PlainView(RelationId(2), "p", SCHEMA, "SELECT a FROM s", (STREAM.id,))
VIEW = View(ID, "v", SCHEMA, "SELECT a + 1 AS a FROM p", (STREAM.id,), (PLAIN.id,), key=("a",))
NEEDS = StepPlan(frozenset([STREAM.id]), {}, frozenset(), {})


def declared(*relations: Relation) -> dict[RelationId, Relation]:
    return {each.id: each for each in (STREAM, PLAIN, VIEW, *relations)}


def computed(*, crossed: bool = False) -> ComputedColumns:
    """Return ``a + 1`` as of a planned program: Catalyst's part has objects of the JVM."""
    one = Constant(pa.int32(), pa.scalar(1, pa.int32()))
    plus = Call(pa.int32(), pc.add_checked, (InputColumn(pa.int32(), 0), one))
    jvm = cast("Any", object())
    catalyst = InCatalyst(jvm, (jvm,), (jvm, jvm), (crossed,))
    schema = pa.schema([pa.field("e0", pa.int32())])
    return ComputedColumns((None if crossed else plus,), schema, catalyst)


def program(node: RowsNode | None = None, *, crossed: bool = False) -> StoredProgram:
    leaf = DeltaLeaf(STREAM.id, ("a",), offsets=False, schema=ROWS)
    whole = Projected(leaf, (2, 1), computed(crossed=crossed)) if node is None else node
    return StoredProgram(whole, NEEDS, (STREAM.id,))


class Given:
    """Three rows."""

    def read(self, _leaf: DeltaLeaf) -> pa.Table:
        return pa.table({"c0": pa.array([1, None, 3], pa.int32()), "__weight": [1, 1, -1]})


@pytest.fixture
def files(tmp_path: Path) -> ProgramFiles:
    return ProgramFiles(tmp_path / "programs")


def test_a_program_is_as_it_was_without_what_only_catalyst_has(files) -> None:
    files.store(VIEW, "plain", declared(), program())
    found = files.find(VIEW, "plain", declared())
    assert found is not None
    assert (found.needs, found.reads) == (NEEDS, (STREAM.id,))
    assert found.node.rows(StepRun(Given())) == program().node.rows(StepRun(Given()))
    assert files.find(VIEW, "ticks", declared()) is None
    (columns,) = [found.node.evaluated] if isinstance(found.node, Projected) else []
    assert columns is not None
    with pytest.raises(UnplannedError):
        columns.over(pa.table({"c0": pa.array([2**31 - 1], pa.int32())}))  # an overflow
    assert columns.vectors[0] is not None
    assert columns.vectors[0].column(InputRows([pa.array([4], pa.int32())], 1)).to_pylist() == [5]
    files.delete(ID)
    assert files.find(VIEW, "plain", declared()) is None


@pytest.mark.parametrize(
    "other",
    [
        replace(VIEW, query="SELECT a + 2 AS a FROM p"),
        replace(VIEW, circuit="3:another"),
        replace(PLAIN, query="SELECT 2 * a AS a FROM s"),
        replace(STREAM, corrected=True),
    ],
    ids=["its query", "its stored state", "a plain view below", "a stream below"],
)
def test_a_program_of_another_definition_is_not_read(files, other) -> None:
    files.store(VIEW, "plain", declared(), program())
    relations = declared(other)
    assert files.find(cast("Any", relations[ID]), "plain", relations) is None


def test_a_program_of_another_version_is_not_read(files, monkeypatch) -> None:
    files.store(VIEW, "plain", declared(), program())
    monkeypatch.setattr(stored, "digest_of_versions", lambda: b"another")
    assert files.find(VIEW, "plain", declared()) is None


def test_a_damaged_program_is_not_read(files) -> None:
    files.store(VIEW, "plain", declared(), program())
    (file,) = files.folder.iterdir()
    content = file.read_bytes()
    for damaged in (b"", content[:20], content[:-1], content[:-9] + b"\0" + content[-8:]):
        file.write_bytes(damaged)
        assert files.find(VIEW, "plain", declared()) is None


def test_a_program_that_needs_the_jvm_is_not_stored(files) -> None:
    none = cast("Any", None)
    job = JobNode(none, none, {}, none, ROWS, "Window")
    crossing = Filtered(job, computed(crossed=True))
    for other in (program(crossed=True), program(job), program(crossing)):
        files.store(VIEW, "plain", declared(), other)
    files.store(replace(VIEW, functions=("f",)), "plain", declared(), program())
    files.store(VIEW, "plain", {STREAM.id: STREAM}, program())  # a plain view is not declared
    assert not files.folder.exists()


class Harmful:
    """Whoever reads it runs a command."""

    def __reduce__(self) -> Any:
        return os.system, ("false",)


class Disguised:
    """It has an object of this package that no program consists of."""

    def __reduce__(self) -> Any:
        return HeadraceError, (Code.INTERNAL, "made while a program is read")


@pytest.mark.parametrize("harmful", [Harmful(), Disguised()])
def test_reading_a_program_runs_nothing_but_what_programs_consist_of(harmful) -> None:
    assert stored._read(pickle.dumps(StoredProgram(cast("Any", None), NEEDS, ()))) is not None
    assert stored._read(pickle.dumps(StoredProgram(harmful, NEEDS, ()))) is None


def test_where_nothing_can_be_written_nothing_is_stored(tmp_path) -> None:
    (tmp_path / "file").touch()
    files = ProgramFiles(tmp_path / "file" / "programs")
    files.store(VIEW, "plain", declared(), program())
    files.delete(ID)
    assert files.find(VIEW, "plain", declared()) is None
