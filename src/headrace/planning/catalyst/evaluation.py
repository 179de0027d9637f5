"""Evaluating Catalyst's expressions over a few rows in the driver's JVM, without a Spark job.

The expressions are those of an analysed and optimised query, so their meaning is exactly Spark's.
Rows cross to the JVM as text, so this is for small tables; see decision 2 for large ones.

A function in the JVM from the bytes of Arrow rows to the bytes of the result, called at once.

Each call from Python to the JVM takes about as long as evaluating a hundred rows. So what has to be
called for a batch is put together beforehand, of Java's method handles: read the rows, map each of
them by a Scala function, write the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, MapType, StructType

from headrace.planning.catalyst.resolved import type_of
from headrace.planning.catalyst.scala import EXPRESSIONS, Scala, items
from headrace.types import holds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession


_CONVERTERS: Final = "org.apache.spark.sql.execution.arrow.ArrowConverters"
_BOOLEAN: Final = "java.lang.Boolean"
_ELEMENTS: Final = "scala.collection.IterableOnceOps"
_FUNCTION: Final = "scala.Function1"
_INTEGER: Final = "java.lang.Integer"
_ITERATOR: Final = "scala.collection.Iterator"
_LIST: Final = "scala.collection.IterableOps"
_LONG: Final = "java.lang.Long"
_OBJECT: Final = "java.lang.Object"
_TEXT: Final = "java.lang.String"
_TYPE: Final = "org.apache.spark.sql.types.StructType"

_MOST: Final = 1 << 40
"""More rows, and more bytes, than are evaluated here: the result is one batch."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """Calls a function of the JVM on the bytes of an Arrow stream; see :func:`crossing`."""

    scala: Scala
    handle: Any

    def __call__(self, stream: bytes) -> bytes:
        """Return the bytes of an Arrow stream with the results for at least one row."""
        given = self.scala.call("java.util.List", "of", stream)
        found: bytes = self.handle.invokeWithArguments(given)
        return found


def crossing(scala: Scala, function: Any, type_: Any) -> Crossing:
    """Return the call of a function from row to row, whose results have a type of the JVM."""
    return Crossing(scala, _pipeline(scala).bindTo(type_).bindTo(function))


def _pipeline(scala: Scala) -> Any:
    """Return the method handle of a result's type, a function and a stream, made once."""
    return scala.once("a pipeline of rows", lambda: _Handles(scala).pipeline())


@dataclass(frozen=True, slots=True)
class _Handles:
    """Makes method handles."""

    scala: Scala

    def pipeline(self) -> Any:
        converters = self.scala.module(_CONVERTERS)
        one = self.method(f"{_ITERATOR}$", "single", _OBJECT)
        one = one.bindTo(self.scala.module(_ITERATOR))
        context = "org.apache.spark.TaskContext"
        read = self.method(
            f"{_CONVERTERS}$", "fromBatchWithSchemaIterator", _ITERATOR, context
        ).bindTo(converters)
        read = self.then(one, self.given(read, 1, None), self.method("scala.Tuple2", "_1"))
        read = self.typed(read, _ITERATOR, _OBJECT)

        mapped = self.swapped(self.method(_ITERATOR, "map", _FUNCTION), _ITERATOR, _FUNCTION)

        settings = (_LONG, _LONG, _TEXT, _BOOLEAN, _BOOLEAN)
        write = self.method(
            f"{_CONVERTERS}$", "toBatchWithSchemaIterator", _ITERATOR, _TYPE, *settings
        ).bindTo(converters)
        write = self.given(write, 2, _MOST, _MOST, "UTC", True, False)  # noqa: FBT003
        write = self.typed(write, _ELEMENTS, _ITERATOR, _TYPE)
        # The list has consumed the iterator, which frees its memory at its end.
        write = self.then(write, self.method(_ELEMENTS, "toList"))
        write = self.typed(write, _LIST, _ITERATOR, _TYPE)
        write = self.then(write, self.method(_LIST, "head"))
        write = self.swapped(write, _OBJECT, _TYPE)

        combine = self.handles.collectArguments
        return combine(combine(write, 1, mapped), 2, read)

    @property
    def handles(self) -> Any:
        """The functions on method handles."""
        return self.scala.named("java.lang.invoke.MethodHandles")

    def method(self, owner: str, name: str, *parameters: str) -> Any:
        """Return a method; parameters named as a boxed type have the primitive one."""
        found = self.type(owner).getMethod(name, self.types(*parameters))
        return self.handles.publicLookup().unreflect(found)

    def then(self, first: Any, *others: Any) -> Any:
        """Return a call whose result is passed to others, in order."""
        for each in others:
            first = self.handles.filterReturnValue(first, each)
        return first

    def given(self, handle: Any, position: int, *values: Any) -> Any:
        """Return a call with some of its arguments given."""
        given = self.array(_OBJECT, *values)
        return self.handles.insertArguments(handle, position, given)

    def typed(self, handle: Any, returned: str, *parameters: str) -> Any:
        """Return a call with other types, to which values are cast."""
        return handle.asType(self.signature(returned, *parameters))

    def swapped(self, handle: Any, returned: str, second: str) -> Any:
        """Return a call of an iterator and another argument, with that one first."""
        order = self.array(_INTEGER, 1, 0)
        signature = self.signature(returned, second, _ITERATOR)
        return self.handles.permuteArguments(handle, signature, order)

    def signature(self, returned: str, *parameters: str) -> Any:
        method_type = self.scala.named("java.lang.invoke.MethodType").methodType
        return method_type(self.type(returned), self.types(*parameters))

    def types(self, *names: str) -> Any:
        return self.array("java.lang.Class", *map(self.type, names))

    def type(self, name: str) -> Any:
        if name in (_BOOLEAN, _INTEGER, _LONG):
            return self.scala.named(name).TYPE
        return self.scala.named("java.lang.Class").forName(name)

    def array(self, kind: str, *values: Any) -> Any:
        made = self.scala.named("java.lang.reflect.Array").newInstance(self.type(kind), len(values))
        for position, value in enumerate(values):
            made[position] = value
        return made


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
