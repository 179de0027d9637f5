"""Random scalar expressions of a wanted type, which cannot fail on any row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from generator.schemas import TEXTS
from generator.syntax import Expr, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

INT, LONG, TEXT, DECIMAL = Kind.INT, Kind.LONG, Kind.TEXT, Kind.DECIMAL
DATE, TIME, BOOL, DOUBLE, LIST = Kind.DATE, Kind.TIME, Kind.BOOL, Kind.DOUBLE, Kind.LIST
OF_DAY = Kind.OF_DAY

COMPARED = (INT, INT, INT, LONG, TEXT, TEXT, DECIMAL, DATE, TIME, OF_DAY, BOOL)
LIMITS = {INT: 2**31 - 1, LONG: 2**62, DECIMAL: 10**10}

Bound = "Callable[[Sequence[int]], int]"


@dataclass(frozen=True, slots=True)
class Form:
    """A function: its template, the kinds it takes, and how large its result can be."""

    tag: str
    template: str
    kinds: tuple[Kind, ...]
    bound: Callable[[Sequence[int]], int] = max


def _forms(bound: Callable[[Sequence[int]], int], *kinds: Kind, **templates: str) -> list[Form]:
    return [Form(tag.rstrip("_"), t, kinds, bound) for tag, t in templates.items()]


def _arithmetic(kind: Kind) -> list[Form]:
    same = (kind, kind)
    return [
        Form("+", "({0} + {1})", same, sum),
        Form("-", "({0} - {1})", same, sum),
        Form("*", "({0} * {1})", same, lambda b: b[0] * b[1]),
        Form("negative", "(- {0})", (kind,)),
        *_forms(max, kind, abs="abs({0})"),
        *_any(kind),
        *_forms(max, kind, kind, greatest="greatest({0}, {1})", least="least({0}, {1})"),
    ]


def _any(kind: Kind) -> list[Form]:
    return [
        *_forms(max, kind, kind, coalesce="coalesce({0}, {1})", nullif="nullif({0}, {1})"),
        Form("CASE", "CASE WHEN {2} THEN {0} ELSE {1} END", (kind, kind, BOOL)),
        Form("CASE", "CASE WHEN {1} THEN {0} END", (kind, BOOL)),
        Form("if", "if({2}, {0}, {1})", (kind, kind, BOOL)),
    ]


_WHOLE = [
    Form("%", "({0} % NULLIF({1}, 0))", (INT, INT)),
    *_forms(lambda _: 7, INT, pmod="pmod({0}, 7)"),
    *_forms(sum, INT, INT, try_add="try_add({0}, {1})", try_subtract="try_subtract({0}, {1})"),
    *_forms(lambda _: 100, TEXT, length="length({0})", TRY_CAST="TRY_CAST({0} AS INT)"),
    *_forms(lambda _: 70000, TEXT, ascii="ascii({0})"),
    *_forms(lambda _: 100, TEXT, TEXT, instr="instr({0}, {1})"),
    *_forms(lambda _: 1, BOOL, CAST="CAST({0} AS INT)"),
    *_forms(lambda _: 9999, DATE, year="year({0})", day="day({0})", dayofweek="dayofweek({0})"),
    *_forms(lambda _: 59, TIME, hour="hour({0})", extract="extract(MINUTE FROM {0})"),
    *_forms(lambda _: 59, OF_DAY, hour="hour({0})", extract="extract(MINUTE FROM {0})"),
    *_forms(lambda _: 1440, OF_DAY, OF_DAY, time_diff="CAST(time_diff('MINUTE', {0}, {1}) AS INT)"),
    *_forms(lambda _: 20000, DATE, DATE, datediff="datediff({0}, {1})"),
]
_LONGER = [
    *_forms(max, INT, CAST="CAST({0} AS BIGINT)"),
    Form("DIV", "({0} DIV NULLIF({1}, 0))", (INT, INT)),
    Form("CASE that guards", "CASE WHEN {1} <> 0 THEN {0} DIV {1} END", (INT, INT)),
    Form("+", "({0} + {1})", (LONG, INT), sum),
    Form("*", "({0} * {1})", (LONG, INT), lambda b: b[0] * b[1]),
    Form("%", "({0} % 1000)", (LONG,), lambda _: 1000),
    Form("floor", "CAST(floor({0}) AS BIGINT)", (DECIMAL,), lambda b: b[0] + 1),
]
_TEXTS = [
    *_forms(max, TEXT, upper="upper({0})", lower="lower({0})", trim="trim({0})"),
    *_forms(max, TEXT, reverse="reverse({0})", substr="substr({0}, 1, 2)", left="left({0}, 1)"),
    *_forms(max, TEXT, replace="replace({0}, 'a', 'b')", lpad="lpad({0}, 3, '*')"),
    *_forms(max, TEXT, TEXT, concat="concat({0}, {1})", concat_ws="concat_ws('-', {0}, {1})"),
    Form("||", "({0} || {1})", (TEXT, TEXT)),
    *_forms(max, INT, CAST="CAST({0} AS STRING)"),
    *_forms(max, DECIMAL, CAST="CAST({0} AS STRING)"),
    *_forms(max, OF_DAY, CAST="CAST({0} AS STRING)"),
    *_forms(max, DATE, CAST="CAST({0} AS STRING)", date_format="date_format({0}, 'yyyy-MM')"),
]
_DECIMALS = [
    *_forms(max, INT, CAST="CAST({0} AS DECIMAL(12,2))"),
    *_forms(lambda b: b[0] + 1, DECIMAL, round="round({0}, 1)", floor="floor({0})"),
    Form("+", "({0} + {1})", (DECIMAL, INT), sum),
    Form("*", "({0} * {1})", (DECIMAL, INT), lambda b: b[0] * b[1]),
    Form(
        "try_divide",
        "CAST(try_divide({0}, {1}) AS DECIMAL(20,4))",
        (DECIMAL, INT),
    ),
    Form("/", "CAST({0} / NULLIF({1}, 0) AS DECIMAL(20,4))", (INT, INT)),
]
_DATES = [
    *_forms(max, DATE, INT, date_add="date_add({0}, {1} % 10)", date_sub="date_sub({0}, {1} % 7)"),
    *_forms(max, DATE, last_day="last_day({0})", trunc="trunc({0}, 'MM')"),
    *_forms(max, DATE, add_months="add_months({0}, 1)"),
    *_forms(max, TIME, CAST="CAST({0} AS DATE)"),
    *_forms(max, INT, make_date="make_date(2024, 1 + pmod({0}, 12), 1)"),
    *_forms(max, DATE, DATE, greatest="greatest({0}, {1})"),
]
_TIMES = [
    *_forms(max, TIME, date_trunc="date_trunc('HOUR', {0})"),
    Form("interval", "({0} + INTERVAL '20' MINUTE)", (TIME,)),
    Form("interval", "({0} - INTERVAL '1 02' DAY TO HOUR)", (TIME,)),
    *_forms(max, DATE, CAST="CAST({0} AS TIMESTAMP)"),
]
_OF_DAY = [
    *_forms(
        max, OF_DAY, time_trunc="time_trunc('HOUR', {0})", try_add="try_add({0}, INTERVAL '2' HOUR)"
    ),
    *_forms(max, OF_DAY, OF_DAY, greatest="greatest({0}, {1})", least="least({0}, {1})"),
    *_forms(max, TIME, CAST="CAST({0} AS TIME(6))"),
    *_forms(max, INT, make_time="make_time(pmod({0}, 24), 30, 0)"),
]
_TRUTHS = [
    Form("AND", "({0} AND {1})", (BOOL, BOOL)),
    Form("OR", "({0} OR {1})", (BOOL, BOOL)),
    Form("NOT", "(NOT {0})", (BOOL,)),
    Form("IS TRUE", "({0} IS NOT TRUE)", (BOOL,)),
    *_forms(max, TEXT, LIKE="({0} LIKE 'a%')", startswith="startswith({0}, 'a')"),
    *_forms(max, TEXT, TEXT, contains="contains({0}, {1})"),
]
_COMPARISONS = [
    *((f, f"({{0}} {f} {{1}})") for f in ("=", "<>", "<>", "<", "<=", ">", ">=", "<=>")),
    *((f, f"({{0}} {f} {{1}})") for f in ("<=", ">=")),
    ("IS DISTINCT FROM", "({0} IS DISTINCT FROM {1})"),
    ("IS NULL", "({0} IS NULL)"),
    ("IS NOT NULL", "({0} IS NOT NULL)"),
    ("BETWEEN", "({0} BETWEEN {1} AND {2})"),
    ("IN list", "({0} IN ({1}, {2}))"),
    ("NOT BETWEEN", "({0} NOT BETWEEN {1} AND {2})"),
    ("NOT IN list", "({0} NOT IN ({1}, {2}))"),
]
_CLOCKED = (
    "({0} > now() - INTERVAL '25' MINUTE)",
    "({0} <= now())",
    "({0} + INTERVAL '10' MINUTE >= now())",
    "({0} BETWEEN now() - INTERVAL '40' MINUTE AND now() + INTERVAL '5' MINUTE)",
    "(now() BETWEEN {0} AND {0} + INTERVAL '15' MINUTE)",
    "(now() - {0} < INTERVAL '30' MINUTE)",
)
_DOUBLES = [
    *_forms(max, INT, CAST="CAST({0} AS DOUBLE)", sqrt="sqrt(abs({0}))"),
    Form("*", "({0} * 2)", (DOUBLE,)),
]

FORMS: dict[Kind, list[Form]] = {
    INT: [*_arithmetic(INT), *_WHOLE],
    LONG: [*_arithmetic(LONG), *_LONGER],
    DECIMAL: [*_arithmetic(DECIMAL), *_DECIMALS],
    TEXT: [*_any(TEXT), *_TEXTS],
    DATE: [*_any(DATE), *_DATES],
    TIME: [
        *_any(TIME),
        *_TIMES,
        *_forms(max, DATE, OF_DAY, make_timestamp="make_timestamp({0}, {1})"),
    ],
    OF_DAY: [*_any(OF_DAY), *_OF_DAY],
    BOOL: [*_any(BOOL), *_TRUTHS, *_TRUTHS],
    DOUBLE: [*_any(DOUBLE), *_DOUBLES],
    LIST: [Form("array", "array({0}, {1})", (INT, INT))],
}


class Expressions:
    """Makes expressions over the columns in scope."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def literal(self, kind: Kind) -> Expr:
        """Return a constant, sometimes NULL."""
        random = self.random
        if random.random() < 0.03 and kind is not LIST:
            return Expr(kind, f"CAST(NULL AS {kind})", tag="NULL", bound=1)
        drawn = random.randrange(8)
        match kind:
            case Kind.INT:
                text = str(drawn)
            case Kind.LONG:
                text = f"{drawn}L"
            case Kind.DECIMAL:
                text = f"{drawn * 0.25 - 0.75:.2f}"
            case Kind.TEXT:
                quoted = random.choice(TEXTS).replace("'", "\\'")
                text = f"'{quoted}'"
            case Kind.DATE:
                text = f"DATE '2024-0{('2-27', '2-28', '2-29', '3-01')[drawn % 4]}'"
            case Kind.TIME:
                text = f"TIMESTAMP '2024-02-2{8 + drawn // 6} {('23', '00')[drawn // 6]}:{drawn % 6}5:00'"
            case Kind.OF_DAY:
                text = f"TIME '{drawn * 3:02}:{drawn % 5 * 12:02}:00'"
            case Kind.BOOL:
                text = random.choice(("TRUE", "FALSE"))
            case Kind.DOUBLE:
                text = f"{drawn}.5D"
            case Kind.LIST:
                text = f"array({drawn}, 1)"
        return Expr(kind, text, bound=drawn + 1)

    def column(self, kind: Kind, scope: Sequence[Expr]) -> Expr | None:
        """Return a column of a kind, if there is one."""
        found = [c for c in scope if c.kind is kind]
        return self.random.choice(found) if found else None

    def make(self, kind: Kind, scope: Sequence[Expr], depth: int = 2) -> Expr:
        """Return an expression; ``depth`` limits how deep functions nest."""
        column = self.column(kind, scope)
        if depth <= 0 or (column is not None and self.random.random() < 0.35):
            draw = self.random.random()
            return column if column is not None and draw < 0.85 else self.literal(kind)
        if kind is BOOL and self.random.random() < 0.65:
            return self.comparison(scope, depth)
        form = self.random.choice(_reachable(kind, scope))
        args = tuple(self.make(k, scope, depth - 1) for k in form.kinds)
        bound = form.bound([arg.bound for arg in args])
        if bound > LIMITS.get(kind, bound):
            return args[0] if args[0].kind is kind else self.literal(kind)
        return Expr(kind, form.template, args, form.tag, bound)

    def comparison(self, scope: Sequence[Expr], depth: int = 1) -> Expr:
        """Return a comparison, most often of a column with something."""
        kinds = [c.kind for c in scope if c.kind not in (LIST, BOOL)]
        kind = self.random.choice(kinds or COMPARED)
        tag, template = self.random.choice(_COMPARISONS)
        first = self.column(kind, scope) if self.random.random() < 0.7 else None
        args = [first or self.make(kind, scope, depth - 1)]
        for place in ("{1}", "{2}"):
            if place in template:
                rest = [c for c in scope if c is not args[0]]
                args.append(self._other(kind, rest, depth))
        return Expr(BOOL, template, tuple(args), tag)

    def temporal(self, scope: Sequence[Expr]) -> Expr | None:
        """Return the comparison of a column with the clock, if there is one of times."""
        time = self.column(TIME, scope)
        if time is None:
            return None
        return Expr(BOOL, self.random.choice(_CLOCKED), (time,), "temporal filter")

    def _other(self, kind: Kind, scope: Sequence[Expr], depth: int) -> Expr:
        if self.random.random() < 0.65:
            return self.literal(kind)
        return self.make(kind, scope, depth - 1)


def _reachable(kind: Kind, scope: Sequence[Expr]) -> list[Form]:
    """Return the functions that can take a column in scope; all of them, where none can."""
    kinds = {column.kind for column in scope}
    return [form for form in FORMS[kind] if kinds.intersection(form.kinds)] or FORMS[kind]
