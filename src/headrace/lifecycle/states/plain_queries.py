"""Plain queries planned without Spark: their names and types follow from the catalog alone.

The subset is closed: each form has one meaning in Spark, without an implicit cast that could
change a value, and results whose names and types are known. So the tree means what that of Spark's
plan does, and DuckDB answers both in the same way. Whatever is not certain is None, and planned by
Spark; that includes all that Spark refuses, so that errors are Spark's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.algebra.zset import EVERY_ROW
from headrace.execution.engine.reading.pulls import Prepared, Pull
from headrace.execution.engine.reading.scans import Refused, translated, tree
from headrace.execution.engine.reading.scans.expressions import INTEGERS, is_exact, restriction
from headrace.execution.engine.reading.scans.tree import Ordering, Value
from headrace.io.formats.literals import Date, NoLiteral, Timestamp, literal, plain_value
from headrace.planning.catalog import Stream, Table, View
from headrace.planning.catalyst.analysed import Shape
from headrace.planning.sql.lexer import Token, TokenKind
from headrace.planning.sql.plain import (
    Among,
    Call,
    Combined,
    Compared,
    Constant,
    Missing,
    NamedColumn,
    Negated,
    plain_query,
)
from headrace.types import Column, Schema, exchanged, is_collated

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import DataType

    from headrace.execution.engine.reading.scans.tree import Tree
    from headrace.planning.catalog import Catalog
    from headrace.planning.sql.plain import Condition, Operand, OrderedBy, PlainQuery, PlainSource


_KINDS: Final = {"avg": "Average", "count": "Count", "max": "Max", "min": "Min", "sum": "Sum"}
_FLIPPED: Final = {
    "EqualTo": "EqualTo",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "NotEqual": "NotEqual",
}
_EXACT_DIGITS: Final = 15
"""The digits of a decimal number that a DOUBLE always keeps."""
_WIDENED: Final = 28
"""The most digits of decimals that Spark compares with integers without rounding them."""
_MOST_DIGITS: Final = 38
_ADDED_DIGITS: Final = 10
"""The digits by which the sum of decimals is wider."""
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_BOOLEAN: Final = BooleanType()


class _OtherError(Exception):
    """Spark has to plan the query."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A column of FROM, or of the result: its name, its value, and the relation or alias.

    Columns of stored rows are nullable in Spark, and only counts are not.
    """

    name: str
    value: Value
    source: str = ""
    nullable: bool = True


def planned_plainly(text: str, catalog: Catalog) -> tuple[Shape, Prepared] | None:
    """Return a plain query, planned in a catalog; None if Spark has to plan it."""
    query = plain_query(text)
    if query is None:
        return None
    try:
        return _Planner(query, catalog).planned(text)
    except (_OtherError, Refused):
        return None


@dataclass(slots=True)
class _Planner:
    query: PlainQuery
    catalog: Catalog
    fields: list[_Field] = field(default_factory=list)
    """The columns of FROM."""
    relations: list[Stream | Table | View] = field(default_factory=list)
    keys: tuple[Value, ...] | None = None
    """The columns of GROUP BY; None if rows are not grouped."""
    calls: dict[Call, Value] = field(default_factory=dict)
    """The aggregates, each as a named value of a group."""
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    def planned(self, text: str) -> tuple[Shape, Prepared]:
        query = self.query
        rows = self._from()
        if query.where is not None:
            rows = tree.Filter(self._condition(query.where, grouped=False), rows)
        chosen = rows
        if query.group is not None or self._has_calls():
            keys = (self._column(each).value for each in query.group or ())
            self.keys = tuple(dict.fromkeys(keys))
        output = self._output()
        having = None if query.having is None else self._condition(query.having, grouped=True)
        order = tuple(self._order(each, output) for each in query.order)
        if self.keys is not None:
            if query.distinct:
                raise _OtherError
            named = [_named(key, key.id) for key in self.keys]
            rows = tree.Aggregate(self.keys, (*named, *self.calls.values()), rows)
        elif query.distinct:
            values = tuple(each.value for each in output)
            _require_each_once(values)
            rows = tree.Aggregate(values, tuple(_named(each, each.id) for each in values), rows)
        elif having is not None:
            raise _OtherError
        if having is not None:
            rows = tree.Filter(having, rows)
        limited = query.limit is not None or query.offset > 0
        if order:
            known = {each.value for each in order}
            ties = (Ordering(each.value) for each in output if limited and each.value not in known)
            rows = tree.Sort((*order, *ties), rows)
        if limited:
            rows = tree.Limit(query.limit, query.offset, rows)
        shown = tuple(_named(each.value, next(self._ids)) for each in output)
        schema = StructType([StructField(e.name, e.value.type, e.nullable) for e in output])
        plan = tree.Project(shown, rows)
        pull = None
        plain = self.keys is None and not order and not query.offset
        if plain and not query.distinct and len(self.relations) == 1:
            pull = self._pull(chosen, output, schema)
        return self._prepared(text, plan, pull, schema)

    def _prepared(
        self, text: str, plan: Tree, pull: Pull | None, schema: StructType
    ) -> tuple[Shape, Prepared]:
        relations = tuple(sorted(set(self.relations), key=lambda each: each.id))
        prepared = Prepared(text, None, 0, relations, pull, is_kept=True)
        try:
            prepared.scan = translated(plan, exchanged(schema))
        except Refused:
            if pull is None:
                raise
        ids = tuple(each.id for each in relations)
        columns = (Column(f.name, f.dataType, f.nullable) for f in schema.fields)
        return Shape(Schema(tuple(columns)), ids, ids), prepared

    # -- FROM ------------------------------------------------------------------------------

    def _from(self) -> Tree:
        found: Tree | None = None
        for each in self.query.sources:
            stored, fields = self._source(each)
            if any(f.source and f.source == fields[0].source for f in self.fields):
                raise _OtherError
            before = {f.value.id for f in self.fields}
            self.fields += fields
            if found is None or each.on is None:
                found = stored
                continue
            condition = self._condition(each.on, grouped=False)
            if not _joins(condition, before):
                raise _OtherError
            if not all(is_exact(column.type) for column in condition.uses):
                raise _OtherError
            how = "LeftOuter" if each.left else "Inner"
            output = (*found.output, *stored.output)
            found = tree.Join(how, condition, found, stored, output)
        if found is None:
            raise _OtherError
        return found

    def _source(self, source: PlainSource) -> tuple[tree.Stored, list[_Field]]:
        relation = self.catalog.find(source.relation)
        if not isinstance(relation, Stream | Table | View):
            raise _OtherError
        self.relations.append(relation)
        label = source.alias or ("" if "." in source.relation else source.relation)
        fields = [
            _Field(
                each.name,
                Value("AttributeReference", each.type, (), next(self._ids)),
                label.lower(),
            )
            for each in relation.schema.columns
        ]
        columns = tuple((each.name, each.value) for each in fields)
        return tree.Stored(relation.id, columns, isinstance(relation, Stream)), fields

    def _column(self, column: NamedColumn) -> _Field:
        """Return the column of FROM that a name means, under the name as written."""
        name, of = column.name.lower(), column.of.lower()
        if of and any(each.name.lower() == of for each in self.fields):
            raise _OtherError  # perhaps a part of a struct
        found = [e for e in self.fields if e.name.lower() == name and (not of or e.source == of)]
        if len(found) != 1:
            raise _OtherError
        return replace(found[0], name=column.name)

    # -- the SELECT list -------------------------------------------------------------------

    def _has_calls(self) -> bool:
        shown = (each.value for each in self.query.shown)
        order = (each.value for each in self.query.order)
        return any(isinstance(each, Call) for each in (*shown, *order))

    def _output(self) -> list[_Field]:
        if not self.query.shown:
            if self.keys is not None:
                raise _OtherError
            return list(self.fields)
        found = []
        for each in self.query.shown:
            value = each.value
            named = self._called(value) if isinstance(value, Call) else self._grouped(value)
            found.append(replace(named, name=each.name or named.name))
        return found

    def _grouped(self, column: NamedColumn) -> _Field:
        """Return a column of FROM; of GROUP BY, if rows are grouped."""
        found = self._column(column)
        if self.keys is not None and found.value not in self.keys:
            raise _OtherError
        return found

    def _called(self, call: Call) -> _Field:
        """Return an aggregate as a column of the groups, under the name that Spark gives it."""
        if self.keys is None:
            raise _OtherError
        kind, name = _KINDS[call.function], "1"
        argument = Value("Literal", IntegerType(), (), 1)
        if call.of is not None:
            of = self._column(call.of)
            argument, name = of.value, of.name
        key = replace(call, of=None if call.of is None else NamedColumn(str(argument.id)))
        type_ = _type_of_call(call.function, argument.type)
        if key not in self.calls:
            made = tree.Call(kind, call.function, call.distinct)
            called = Value("AggregateExpression", type_, (argument,), made)
            self.calls[key] = Value("Alias", type_, (called,), next(self._ids))
        shown = f"{call.function}({'DISTINCT ' if call.distinct else ''}{name})"
        column = Value("AttributeReference", type_, (), self.calls[key].id)
        return _Field(shown, column, nullable=call.function != "count")

    def _order(self, by: OrderedBy, output: Sequence[_Field]) -> Ordering:
        value = by.value
        if isinstance(value, int):
            if not 1 <= value <= len(output):
                raise _OtherError
            found = output[value - 1].value
        elif isinstance(value, Call):
            found = self._called(value).value
        else:
            found = self._of_result(value, output)
        return Ordering(found, by.descending, by.nulls_last)

    def _of_result(self, column: NamedColumn, output: Sequence[_Field]) -> Value:
        """Return what a name means after the SELECT list: there, or else in FROM, not both."""
        name = column.name.lower()
        named = {} if column.of else {e.value: e for e in output if e.name.lower() == name}
        try:
            below = self._grouped(column).value
        except _OtherError:
            if any(each.name.lower() == name for each in self.fields) or len(named) != 1:
                raise
            return next(iter(named))
        if any(each != below for each in named):
            raise _OtherError
        if self.query.distinct and not any(
            each.value == below and each.name.lower() == name for each in output
        ):
            raise _OtherError
        return below

    # -- conditions ------------------------------------------------------------------------

    def _condition(self, condition: Condition, *, grouped: bool) -> Value:
        match condition:
            case Combined():
                parts = [self._condition(each, grouped=grouped) for each in condition.conditions]
                return Value(condition.kind, _BOOLEAN, tuple(parts))
            case Negated(Missing() as missing):
                return Value("IsNotNull", _BOOLEAN, (self._operand(missing.value, grouped),))
            case Negated():
                return _not(self._condition(condition.condition, grouped=grouped))
            case Missing():
                return Value("IsNull", _BOOLEAN, (self._operand(condition.value, grouped),))
            case Among():
                of = self._operand(condition.value, grouped)
                fitted = (_fitted(each, of.type) for each in condition.constants)
                return Value("In", _BOOLEAN, (of, *fitted))
            case Compared():
                return self._compared(condition, grouped=grouped)
            case NamedColumn():
                found = self._operand(condition, grouped)
                if found.type != _BOOLEAN:
                    raise _OtherError
                return found

    def _compared(self, condition: Compared, *, grouped: bool) -> Value:
        kind, left, right = condition.kind, condition.left, condition.right
        if isinstance(left, Constant):
            kind, left, right = _FLIPPED[kind], right, left
        one = self._operand(left, grouped)
        if isinstance(right, Constant):
            other = _fitted(right, one.type)
        else:
            other = self._operand(right, grouped)
            if other.type != one.type:
                raise _OtherError
        if kind == "NotEqual":
            return _not(Value("EqualTo", _BOOLEAN, (one, other)))
        return Value(kind, _BOOLEAN, (one, other))

    def _operand(self, operand: Operand, grouped: bool) -> Value:  # noqa: FBT001
        match operand:
            case Constant():
                raise _OtherError
            case Call():
                if not grouped:
                    raise _OtherError
                return self._called(operand).value
            case NamedColumn() if grouped:
                return self._of_having(operand)
            case NamedColumn():
                return self._column(operand).value

    def _of_having(self, column: NamedColumn) -> Value:
        if any(column.name.lower() == each.name.lower() for each in self.query.shown):
            raise _OtherError  # perhaps a name of the SELECT list
        return self._grouped(column).value

    # -- rows by conditions ----------------------------------------------------------------

    def _pull(self, rows: Tree, output: Sequence[_Field], schema: StructType) -> Pull | None:
        """Return the query as a pull, if Arrow tests all of its conditions."""
        names = {each.value.id: each.name for each in self.fields}
        tests, exact = EVERY_ROW, True
        if isinstance(rows, tree.Filter):
            tests, exact = restriction(rows.condition, names)
        if not exact:
            return None
        shown = tuple(names[each.value.id] for each in output)
        tested = (test.column for test in tests.tests)
        columns = tuple(dict.fromkeys([*shown, *tested]))
        return Pull(tests, None, columns, shown, None, exchanged(schema), self.query.limit)


def _named(value: Value, id_: int) -> Value:
    return Value("Alias", value.type, (value,), id_)


def _not(condition: Value) -> Value:
    return Value("Not", _BOOLEAN, (condition,))


def _require_each_once(values: Sequence[Value]) -> None:
    if len(set(values)) != len(values):
        raise _OtherError


def _joins(condition: Value, before: set[int]) -> bool:
    """Whether a condition needs a column of one side to equal one of the other."""
    if condition.kind == "And":
        return any(_joins(each, before) for each in condition.below)
    if condition.kind != "EqualTo":
        return False
    sides = [{each.id for each in side.uses} <= before for side in condition.below]
    return sides[0] != sides[1] and all(e.kind == "AttributeReference" for e in condition.below)


def _type_of_call(function: str, of: DataType) -> DataType:
    """Return the type of an aggregate."""
    match function, of:
        case "count", _:
            return LongType()
        case "min" | "max", _:
            return of
        case "sum", DecimalType():
            return DecimalType(min(_MOST_DIGITS, of.precision + _ADDED_DIGITS), of.scale)
        case "sum", _ if type(of) in INTEGERS:
            return LongType()
        case "avg", _ if type(of) in INTEGERS:
            return DoubleType()
    raise _OtherError


def _fitted(constant: Constant, type_: DataType) -> Value:
    """Return a constant as a value of the type of the column that it is compared with.

    Spark may cast either side to compare them; the result is the same if the constant is a value
    of the column's type as it is written, and no digit of the column's values is lost.
    """
    token, typed = constant.token, constant.typed
    match type_:
        case DateType():
            return Value("Literal", type_, (), _day(token, typed))
        case TimestampType() | TimestampNTZType():
            return Value("Literal", type_, (), _time(token, typed, type_))
        case _ if typed or is_collated(type_):
            raise _OtherError
        case DoubleType():
            return Value("Literal", type_, (), _double(constant))
        case DecimalType() if type_.precision > _WIDENED:
            raise _OtherError
    plain, value = plain_value(token, type_, negative=constant.negative)
    if not plain or value is None:
        raise _OtherError
    return Value("Literal", type_, (), value)


def _double(constant: Constant) -> float:
    text = constant.token.text
    if constant.token.kind is not TokenKind.NUMBER or _NUMBER.fullmatch(text) is None:
        raise _OtherError
    if len(text.replace(".", "")) > _EXACT_DIGITS:
        raise _OtherError
    return -float(text) if constant.negative else float(text)


def _day(token: Token, typed: str) -> int:
    found = _literal(token, typed or "DATE")
    if not isinstance(found, Date):
        raise _OtherError
    return found.days


def _time(token: Token, typed: str, type_: DataType) -> int:
    words = (
        ("TIMESTAMP_NTZ",) if type(type_) is TimestampNTZType else ("TIMESTAMP", "TIMESTAMP_LTZ")
    )
    if typed and typed not in words:
        raise _OtherError
    found = _literal(token, words[0])
    if not isinstance(found, Timestamp):
        raise _OtherError
    return found.micros


def _literal(token: Token, word: str) -> object:
    """Return the value of a string after the word of its type."""
    if token.kind is not TokenKind.STRING or "\\" in token.text:
        raise _OtherError
    try:
        return literal([Token(TokenKind.WORD, word, token.start, token.start), token])
    except NoLiteral as error:
        raise _OtherError from error
