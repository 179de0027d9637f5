"""Limits the constants that Spark evaluates while it plans a query.

Spark's analyser evaluates the rows of ``VALUES`` and some arguments, and its optimiser every
expression without columns, in the process that makes epochs and with its planner's lock held.
``repeat('x', 2000000000)`` would exhaust the heap there, and some regular expressions never end. So
upper bounds of the size of constants, and of the time that patterns over them may take, are
estimated first. The text is checked before it is analysed (:func:`check_parsed_constants`), and the
resolved plan before it is optimised (:func:`check_resolved_constants`), when constants of
subqueries and common table expressions are known.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, product
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import get_field
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.errors import Code, HeadraceError
from headrace.planning.catalyst.fence import origin
from headrace.planning.catalyst.scala import (
    OPTIMIZER,
    SUBQUERIES,
    items,
    kind_of,
    maybe,
    part,
    replaced,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.errors import Span
    from headrace.planning.catalyst.scala import Scala


VALUES_PARSED: Final = ("spark.sql.parser.eagerEvalOfUnresolvedInlineTable", "false")
"""The setting that makes Spark's analyser, not its parser, evaluate the rows of VALUES."""
MOST_BYTES: Final = 16 << 20
MOST_ROWS: Final = 10_000_000
"""The most rows that the ranges of a query may make."""
_MOST_STEPS: Final = 10_000_000
"""The most steps that a pattern may take in the worst case."""
_MOST_TEXTS: Final = 64
"""The most texts that a pattern computed from literals may have."""
_GROWING: Final = re.compile(
    r"""(?ix) \|\| | \b(?: repeat | space | [lr]pad | sequence | array\w* | concat\w* | named_struct
    | struct | map\w* | replace | translate | format_\w+ | printf | hex
    | url_encode | to_json | r?like | ilike | regexp\w* | split | levenshtein | jaro\w+ )\b"""
)
"""Names in the text without which a query has no constant that is large or takes long."""
_ALIKE: Final = frozenset(
    """
    alias array casewhen cast coalesce concat concat_ws element_at if lower lcase map
    map_from_arrays named_struct nvl
    struct substr substring trim try_cast ucase upper
    """.split()  # noqa: SIM905
)
"""Functions whose value is not larger than their arguments together."""
_OTHERS_GROW: Final = 6
"""The size of other functions' values, as a multiple of the size of their arguments."""
_PATTERNS: Final = {
    **dict.fromkeys(["like", "ilike"], "%"),
    **dict.fromkeys(
        """
        regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
        regexp_replace regexp_substr rlike split
        """.split(),  # noqa: SIM905
        "*+{",
    ),
}
"""Functions whose second argument is a pattern, and the repetitions in patterns."""
_SMALL: Final = frozenset(
    """
    abs array_position array_size ascii bit_length cardinality char_length character_length contains
    crc32 endswith find_in_set hash instr len length levenshtein locate md5 octet_length
    position sha sha1 sha2 size startswith xxhash64
    """.split()  # noqa: SIM905
)
"""Functions over texts whose values are small."""
_OF_TEXTS: Final = frozenset(
    """
    Alias Cast Coalesce Concat ConcatWs CreateArray CreateMap CreateNamedStruct If CaseWhen
    UnresolvedAlias
    """.split()  # noqa: SIM905
)
"""Classes of parsed expressions, other than function calls, with values of variable size."""
_VARYING: Final = ("string", "char", "varchar", "binary", "array", "map", "struct", "variant")
"""The types whose values vary in size."""
_EVALUATED_EARLY: Final = frozenset(
    """
    approx_count_distinct approx_percentile count_min_sketch from_csv from_json from_xml
    histogram_numeric lag lead listagg nth_value ntile percentile percentile_approx percentile_cont
    percentile_disc schema_of_csv schema_of_json schema_of_xml session_window string_agg window
    """.split()  # noqa: SIM905
)
"""Functions with arguments that the analyser evaluates."""
_OF_ROWS: Final = ("Attribute", "OuterReference", "Star", "Variable")
"""Parts of the class names of expressions whose values may differ from row to row."""
_COLUMNS: Final = frozenset({"AttributeReference", "OuterReference"})
_DAY: Final = 86_400_000_000
_MONTH: Final = 28 * _DAY
_ENTRY: Final = 8
"""The overhead of an element of an array, in bytes."""


def check_parsed_constants(parsed: Any, query: Span) -> None:
    """Refuse a parsed query with a constant that is too large, or may take too long.

    Raises:
        HeadraceError: ``unsupported``, at the constant.
    """
    if _GROWING.search(query.source) is not None:
        with shallow(query):
            _Parsed(query).visit(parsed)


def check_resolved_constants(
    scala: Scala, analysed: Any, query: Span, views: Iterable[str]
) -> None:
    """Refuse a resolved query with such a constant; ``views`` has the texts of its plain views.

    Raises:
        HeadraceError: ``unsupported``, at the constant.
    """
    if any(_GROWING.search(text) is not None for text in (query.source, *views)):
        with shallow(query):
            _Resolved(query, scala).visit(analysed)


def check_ranges(optimised: Any, query: Span) -> None:
    """Refuse an optimised query whose ranges make more than :data:`MOST_ROWS` rows.

    No table bounds them: an aggregate, such as ``collect_list``, could exhaust the memory.

    Raises:
        HeadraceError: ``unsupported``.
    """
    for plan in (optimised, *items(optimised.subqueriesAll())):
        _ranged(plan, query)


def _ranged(plan: Any, query: Span) -> int:
    """Return how many rows the ranges below a node make of each row of relations; 1 without any."""
    kind = str(plan.nodeName())
    below = [_ranged(child, query) for child in items(plan.children())]
    match kind:
        case "Range":
            found = int(str(plan.numElements()))
        case "Union":
            found = sum(below)
        case "Join" if _pairs_all(plan):
            found = math.prod(below)
        case _:
            found = max(below, default=1)
    if found > MOST_ROWS:
        raise HeadraceError(
            Code.UNSUPPORTED,
            f"{found:,} rows of ranges are not supported in a query",
            detail=f"There may be {MOST_ROWS:,}, where ranges are joined without = as pairs.",
            hint="Give smaller ranges, or INSERT their numbers into a table in several steps.",
            span=origin(plan, query),
        )
    return found


def _pairs_all(join: Any) -> bool:
    """Whether a join may return each pair of rows: without an equality, and not just a test."""
    if str(join.joinType().sql()) in {"LEFT SEMI", "LEFT ANTI"}:
        return False
    pending = [] if (condition := maybe(join.condition())) is None else [condition]
    while pending:
        each = pending.pop()
        if kind_of(each) in {"EqualTo", "EqualNullSafe"}:
            return False
        if kind_of(each) == "And":
            pending += items(each.children())
    return True


@contextmanager
def shallow(query: Span) -> Iterator[None]:
    """Refuse a query that is nested too deeply for the walk in the block."""
    try:
        yield
    except RecursionError as error:
        raise HeadraceError(
            Code.UNSUPPORTED,
            "a query that is nested so deeply is not supported",
            hint="Split it into several views.",
            span=query,
        ) from error


@dataclass(slots=True)
class _Parsed:
    """Estimates the constants of a parsed query."""

    query: Span

    def visit(self, plan: Any, *, early: bool = False) -> None:
        """Check the expressions of a plan and its inputs; ``early``: the analyser runs them."""
        kind = str(plan.nodeName())
        if kind == "UnresolvedWith":
            for pair in items(plan.cteRelations()):
                self.visit(part(pair, 1))
        early = early or kind in {"UnresolvedInlineTable", "GlobalLimit", "LocalLimit", "Offset"}
        for expression in items(plan.expressions()):
            self.size(expression, early=early)
        for child in items(plan.children()):
            self.visit(child)

    def size(self, expression: Any, *, early: bool = False) -> float | None:
        """Return an upper bound of the bytes of an expression's value; None if it depends on rows.

        Raises:
            HeadraceError: ``unsupported`` if it is constant and too large, or may take too long.
        """
        kind = kind_of(expression)
        if kind == "Literal":
            return _literal(expression)
        if kind in SUBQUERIES:
            return self.of_subquery(expression)
        name = _name(expression, kind)
        given = items(expression.children())
        early = early or name in _EVALUATED_EARLY
        sizes = [self.size(each, early=early) for each in given]
        known = self.leaf(expression, kind) if not given else None
        if known is not None:
            return known
        if not given and kind not in {"UnresolvedFunction", "CreateArray", "CreateMap"}:
            return (
                None
                if kind in _COLUMNS or "Attribute" in kind or "Star" in kind or "Variable" in kind
                else _ENTRY
            )
        if any(size is None for size in sizes) or not self.is_constant(expression, kind):
            return None
        mine = [size or 0.0 for size in sizes]
        self._require_quick(expression, name, given, mine)
        found = self.fixed(expression, kind)
        if found is None:
            found = self._grown(name, given, mine, early=early)
        if found > MOST_BYTES:
            raise _too_large(name, origin(expression, self.query))
        return found

    def is_constant(self, expression: Any, kind: str) -> bool:
        """Whether an expression is constant, if all of its arguments are."""
        del expression, kind
        return True

    def of_subquery(self, expression: Any) -> float | None:
        """Check a subquery; return the size of its value if it is constant."""
        self.visit(expression.plan())
        return None

    def fixed(self, expression: Any, kind: str) -> float | None:
        """Return the size of an expression with a type of fixed size, else None."""
        if kind == "UnresolvedFunction":
            return _ENTRY if _name(expression, kind) in _SMALL else None
        return None if kind in _OF_TEXTS else _ENTRY

    def leaf(self, expression: Any, kind: str) -> float | None:
        """Return the size of an expression without children, or None if it is not known."""
        del expression, kind
        return None

    def number(self, expression: Any, *, early: bool) -> float | None:
        """Return the value of a constant; infinity if unknown, None if known after analysis.

        Dates are in days, times and time intervals in microseconds, and months are negative
        numbers.
        """
        if kind_of(expression) == "UnaryMinus":
            inner = self.number(items(expression.children())[0], early=early)
            return None if inner is None else -inner
        if kind_of(expression) == "Literal":
            return _numeric(expression, expression.value())
        return math.inf if early else None

    def _grown(
        self, name: str, given: Sequence[Any], sizes: Sequence[float], *, early: bool
    ) -> float:
        """Return an upper bound of the bytes of a function's value, by those of its arguments."""
        total = sum(sizes) + _ENTRY * len(sizes)

        def times(at: int) -> float:
            found = self.number(given[at], early=early) if at < len(given) else 1.0
            return 0.0 if found is None else max(0.0, found)

        match name:
            case "repeat" | "array_repeat":
                return (sizes[0] + (_ENTRY if name != "repeat" else 0)) * times(1)
            case "space":
                return times(0)
            case "lpad" | "rpad":
                return 4 * times(1) + total
            case "sequence":
                return _ENTRY * self._length(given, early=early)
            case "format_number":
                return total + times(1)
            case "format_string" | "printf":
                return total + _width(given[0])
            case "replace" | "regexp_replace" | "array_join" | "translate":
                groups = sizes[0] if name == "regexp_replace" else 0.0
                return (sizes[0] + 1) * (1 + sum(sizes[1:]) + groups)
        return total if name in _ALIKE else _OTHERS_GROW * total

    def _length(self, given: Sequence[Any], *, early: bool) -> float:
        """Return the length of a sequence."""
        bounds = [self.number(each, early=early) for each in given]
        if any(bound is None for bound in bounds):
            return 0.0
        start, stop, *steps = (bound or 0.0 for bound in bounds)
        if math.inf in (start, stop, *steps):
            return math.inf
        step = steps[0] if steps else _DAY if _is_time(given[0]) else 1
        return abs(stop - start) / max(abs(step), 1) + 1

    def _require_quick(
        self, expression: Any, name: str, given: Sequence[Any], sizes: Sequence[float]
    ) -> None:
        """Refuse a constant whose evaluation may take long although it is small."""
        if name in {"levenshtein", "jaro_winkler_similarity"}:
            steps = math.prod(sizes[:2])
        elif name in _PATTERNS and len(given) > 1:
            steps = _steps(given[1], sizes[0], _PATTERNS[name])
        else:
            return
        if steps > _MOST_STEPS:
            raise _too_long(name, origin(expression, self.query))


@dataclass(slots=True)
class _Resolved(_Parsed):
    """Estimates the constants of a resolved query, including constant columns of subqueries."""

    scala: Scala
    _known: dict[int, float] = field(default_factory=dict)
    """The sizes of columns that are constants, by the ids of their attributes."""
    _values: dict[int, Any] = field(default_factory=dict)
    """The expressions of these columns."""
    _tables: dict[int, list[int]] = field(default_factory=dict)
    """The columns of common table expressions."""

    def visit(self, plan: Any, *, early: bool = False) -> None:
        """Check the expressions of a plan, and record which of its columns are constants."""
        del early
        self._visit(self._replaced(plan))

    def _replaced(self, plan: Any) -> Any:
        """Return a plan with the clock and runtime-replaceable expressions replaced."""
        for rule in ("ReplaceExpressions", "ComputeCurrentTime"):
            plan = self.scala.module(f"{OPTIMIZER}.{rule}").apply(plan)
        return plan

    def _visit(self, plan: Any) -> None:
        for child in items(plan.children()):
            self._visit(child)
        kind = str(plan.nodeName())
        if kind == "CTERelationDef":
            self._tables[int(plan.id())] = [_id(each) for each in items(plan.output())]
        elif kind == "CTERelationRef":
            columns = self._tables.get(int(plan.cteId()), [])
            for mine, theirs in zip(items(plan.output()), columns, strict=False):
                if theirs in self._known:
                    self._known[_id(mine)] = self._known[theirs]
                    self._values[_id(mine)] = self._values[theirs]
        for expression in items(plan.expressions()):
            size = self.size(expression)
            if size is not None and kind_of(expression) == "Alias":
                self._known[_id(expression)] = size
                self._values[_id(expression)] = self._constant(expression.child())

    def _constant(self, expression: Any) -> Any:
        """Return an expression with its constant columns replaced by their values."""

        def value(each: Any, kind: str, _node: str) -> Any | None:
            if kind in _COLUMNS:
                return self._values.get(_id(each))
            if kind == "ScalarSubquery":
                return self._values.get(_id(items(each.plan().output())[0]))
            return None

        return replaced(self.scala, expression, "", value) if self._values else expression

    def of_subquery(self, expression: Any) -> float | None:
        """Check a subquery; return the size of its value if it is constant."""
        plan = expression.plan()
        self.visit(plan)
        columns = items(plan.output())
        return self._known.get(_id(columns[0])) if len(columns) == 1 else None

    def leaf(self, expression: Any, kind: str) -> float | None:
        """Return the size of a column that is a constant."""
        return self._known.get(_id(expression)) if kind in _COLUMNS else None

    def is_constant(self, expression: Any, kind: str) -> bool:
        """Whether an expression is constant: neither aggregates nor random functions are."""
        return kind == "Alias" or bool(self._constant(expression).foldable())

    def fixed(self, expression: Any, kind: str) -> float | None:
        """Return the size of a value of fixed size, such as a number or a time, else None."""
        try:
            type_ = str(expression.dataType().typeName())
        except (Py4JError, PySparkException):
            return _ENTRY  # a window or similar has no type
        varies = kind == "Alias" or type_.startswith(_VARYING)
        return None if varies else 2.0 * _ENTRY

    def number(self, expression: Any, *, early: bool) -> float | None:
        """Return the value of a constant whose parts are all small; infinity if it has no value."""
        del early
        expression = self._constant(expression)
        try:
            value = expression.eval(None) if expression.foldable() else math.inf
        except (Py4JError, PySparkException):
            return math.inf
        return _numeric(expression, value)


def _name(expression: Any, kind: str) -> str:
    """Return the name of the function that an expression calls, in lower case."""
    if kind == "UnresolvedFunction":
        return str(items(expression.nameParts())[-1]).lower()
    return str(expression.prettyName()).lower()


def _is_time(expression: Any) -> bool:
    """Whether a bound of a sequence is a date or a time, so that the default step is a day."""
    if kind_of(expression).startswith("Unresolved"):
        return False
    return str(expression.dataType().typeName()).startswith(("date", "timestamp"))


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _literal(literal: Any) -> float:
    value = literal.value()
    return float(len(value) if isinstance(value, bytes) else len(str(value)) + _ENTRY)


def _numeric(expression: Any, value: Any) -> float:
    """Return a value as a number; infinity if it is not a number, 0 for NULL."""
    if value is None:
        return 0.0
    type_ = str(expression.dataType().typeName())
    if type_ == "interval":
        months, days = get_field(value, "months"), get_field(value, "days")
        return float(months * _MONTH + days * _DAY + get_field(value, "microseconds"))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.inf
    if type_ == "date":
        return float(value * _DAY)
    if type_.startswith("interval") and ("year" in type_ or "month" in type_):
        return float(value * _MONTH)
    return float(value)


def _width(pattern: Any) -> float:
    """Return the sum of the widths in a format string; infinity if the format is not known."""
    if kind_of(pattern) != "Literal":
        return math.inf
    widths = re.findall(r"%[-#+ 0,(<]*(?:\d+\$)?[-#+ 0,(<]*(\d*)(?:\.(\d+))?", str(pattern.value()))
    return float(sum(int(number or 0) for pair in widths for number in pair))


def _steps(pattern: Any, size: float, repeated: str) -> float:
    """Return the steps that a pattern may take over a text of some bytes in the worst case.

    Each repeated part may begin and end anywhere; repeated groups have no bound.
    """
    texts = _texts(pattern)
    if texts is None:
        return math.inf
    return max(_steps_of(text, size, repeated) for text in texts)


def _steps_of(pattern: str, size: float, repeated: str) -> float:
    if repeated != "%":
        pattern = re.sub(r"\\Q.*?(\\E|$)", "", pattern, flags=re.DOTALL)
    text = re.sub(r"\\.", "", pattern, flags=re.DOTALL)
    if repeated != "%" and re.search(r"\)[*+{]", text):
        return math.inf
    count = sum(text.count(each) for each in repeated)
    return max(size, 2.0) ** min(count, 32)


def _texts(pattern: Any) -> list[str] | None:
    """Return the possible texts of a constant pattern; None if they are unknown or too many.

    Dialects compute patterns from literals by ``concat`` and ``CASE``.
    """
    kind = kind_of(pattern)
    if kind == "Literal":
        return [str(pattern.value())]
    if kind == "CaseWhen":
        chosen = [part(branch, 1) for branch in items(pattern.branches())]
        other = maybe(pattern.elseValue())
        found = [_texts(each) for each in (*chosen, *(() if other is None else (other,)))]
        return _known(chain.from_iterable(texts or () for texts in found), found)
    if _name(pattern, kind) == "concat":
        found = [_texts(each) for each in items(pattern.children())]
        return _known(map("".join, product(*(texts or () for texts in found))), found)
    return None


def _known(texts: Iterable[str], found: Sequence[list[str] | None]) -> list[str] | None:
    if any(each is None for each in found):
        return None
    some = list(islice(texts, _MOST_TEXTS + 1))
    return some if len(some) <= _MOST_TEXTS else None


def _too_large(name: str, span: Span) -> HeadraceError:
    into_table = "INSERT INTO t SELECT id FROM range(...) writes more numbers into a table."
    return HeadraceError(
        Code.UNSUPPORTED,
        f"a constant of more than {MOST_BYTES >> 20} MiB is not supported",
        detail=f'The value of "{name}" would be evaluated while the query is planned.',
        hint="Give it a smaller number, or compute it from a column of a table."
        if name != "sequence"
        else f"Give it fewer elements. {into_table}",
        span=span,
    )


def _too_long(name: str, span: Span) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        "a pattern that may take long over a constant is not supported",
        detail=f'The value of "{name}" would be evaluated while the query is planned.',
        hint="Use a simpler pattern or a shorter text, or compare a column of a table.",
        span=span,
    )
