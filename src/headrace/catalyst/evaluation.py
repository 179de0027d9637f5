"""Evaluating Catalyst's expressions over a few rows in the driver's JVM, without a Spark job.

The expressions are those of an analysed and optimised query, so their meaning is exactly Spark's.
Rows cross to the JVM as text, so this is for small tables; see decision 2 for large ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StructType

from headrace.catalyst.crossing import Crossing, crossing
from headrace.catalyst.resolved import type_of
from headrace.catalyst.scala import EXPRESSIONS, Scala, items
from headrace.types import holds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

_NESTED = (ArrayType, MapType, StructType)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Expressions over the columns ``inputs`` of a plan; all are handles of JVM objects.

    The result has the columns of ``schema``, aligned with the expressions.
    """

    scala: Scala
    expressions: Iterable[Any]
    inputs: Any
    schema: StructType

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the values for rows whose columns are aligned with the inputs, in their order.

        Raises:
            Py4JError: an expression fails on a row.
        """
        return self.bound().over(rows)

    def bound(self) -> BoundExpressions:
        """Return the expressions in a form that one thread at a time can evaluate."""
        scala = self.scala
        # Compiling would take longer than interpreting these few rows.
        bind = scala.module(f"{EXPRESSIONS}.BindReferences").bindReferences
        attributes = scala.named(f"{EXPRESSIONS}.package$AttributeSeq")(self.inputs)
        projections = [scala.seq(self.expressions)]
        if any(holds(type_of(each), _NESTED) for each in items(self.inputs)):
            projections.insert(0, self.inputs)
        create = scala.module(f"{EXPRESSIONS}.InterpretedUnsafeProjection").createProjection
        function = None
        for each in projections:
            made = create(bind(each, attributes))
            made.initialize(0)
            function = made if function is None else function.andThen(made)
        return BoundExpressions(crossing(scala, function, scala.type(self.schema.json())))


@dataclass(frozen=True, slots=True)
class BoundExpressions:
    """Expressions bound to their inputs: a function in the JVM from rows to values.

    With nested inputs, the function first copies the rows into Spark's own format. Elements of
    Arrow's arrays fail or have arbitrary values if an expression reads a NULL without checking, as
    lambdas do.
    """

    crossing: Crossing

    def over(self, rows: pa.Table) -> pa.Table:
        """Return the values for rows; see :meth:`Evaluation.over`."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows.combine_chunks())  # Spark reads one batch of a stream
        return pa.ipc.open_stream(self.crossing(sink.getvalue().to_pybytes())).read_all()


def relation(scala: Scala, spark: SparkSession, rows: pa.Table, schema: StructType) -> Any:
    """Return a logical plan of a few rows, whose columns are those of a schema in order."""
    batch = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
    batches = scala.named("java.util.ArrayList")()
    batches.add(bytes(batch[0].serialize()))
    given = scala.named("scala.jdk.javaapi.CollectionConverters").asScala(batches.iterator())
    frame = scala.named("PythonSQLUtils").toDataFrame(given, schema.json(), spark._jsparkSession)  # noqa: SLF001
    return frame.queryExecution().analyzed()
