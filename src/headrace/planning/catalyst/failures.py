"""Translates Spark's errors to Headrace's, with the place in the statement."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.errors import Code, HeadraceError, Span, meant
from headrace.planning.dialects.streams import OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterator


# PySpark would log every refused query, with its stack trace, to standard error.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)

_PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
_NOISE = re.compile(r"^\[[A-Z_.0-9]+\]\s*|\s*SQLSTATE: \w+.*$", re.DOTALL)
_OUTER = re.compile(r"\bouter\(([\w.`]+)\)")
_OWN = re.compile(r"\b__effective_")
"""Names of columns that a rewritten clause has generated."""
_TOO_DEEP = "StackOverflowError"
_UNSUPPORTED = ("UNSUPPORTED", "NOT_SUPPORTED", "NOT_IMPLEMENTED", "FEATURE_NOT_ENABLED")


def translate(error: PySparkException, query: Span) -> HeadraceError:
    """Return Spark's refusal of ``query`` with its place and, if Spark has one, a hint."""
    condition = error.getCondition() or ""
    message = _NOISE.sub("", str(error).split("\n\n")[0].strip())
    code = Code.UNSUPPORTED if any(w in condition for w in _UNSUPPORTED) else Code.INVALID
    parameters = dict(error.getMessageParameters() or {})
    span = _place(error, query)
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = parameters.get("objectName", "").replace("`", "")
        found = [p.strip().replace("`", "") for p in parameters.get("proposal", "").split(",")]
        found = [name for name in found if not name.rpartition(".")[2].startswith("__")]
        hint = meant(name, found, f"There are: {', '.join(found)}." if any(found) else None)
        return HeadraceError(code, f'column "{name}" does not exist', hint=hint, span=span)
    if condition == "UNBOUND_SQL_PARAMETER":
        hint = "Give values from Python: db.sql(text, [value]) for ?, {name: value} for :name."
        return HeadraceError(code, "a parameter has no value", hint=hint, span=span)
    if condition.endswith("INVALID_ORDERING_TYPE") and f"struct({OFFSET}, " in message:
        hint = (
            "Use max_by(x, ROWOFFSET) for the latest value, min_by(x, ROWOFFSET) for the earliest."
        )
        primary = "LATEST_BY_OFFSET and EARLIEST_BY_OFFSET of a MAP are not supported"
        return HeadraceError(Code.UNSUPPORTED, primary, hint=hint, span=span)
    primary, *rest = re.split(r"\.\s+", without_settings(message), maxsplit=1)
    detail = rest[0] if rest else ""
    primary = _OUTER.sub(r"\1", _OWN.sub("effective_", primary.rstrip("."))).replace("`", '"')
    primary = primary[:1].lower() + primary[1:] if primary[1:2].islower() else primary
    hint = _HINTS.get(condition)
    if condition == "PARSE_SYNTAX_ERROR":
        hint = _misspelt(query.text[query.start : span.end])
    return HeadraceError(code, primary, detail=(detail.strip() or None), hint=hint, span=span)


@contextmanager
def translating(query: Span) -> Iterator[None]:
    """Convert errors of Spark's planner to errors at places in the query."""
    try:
        yield
    except PySparkException as error:
        raise translate(error, query) from error
    except Py4JError as error:
        cause = _first_cause(error)
        if _TOO_DEEP in cause:
            raise HeadraceError(
                Code.UNSUPPORTED,
                "the query is nested too deeply",
                hint="Divide it, and name its parts with CREATE VIEW.",
                span=query,
            ) from error
        raise HeadraceError(
            Code.INVALID,
            "Spark cannot make sense of the query",
            detail=cause,
            span=query,
        ) from error


def _first_cause(error: Py4JError) -> str:
    """Return the line of a Java stack trace with the cause."""
    lines = [line for line in str(error).split("\n") if line.startswith(": ")]
    shown = lines[0].removeprefix(": ") if lines else str(error).split("\n")[0]
    return re.sub(r"^[\w.$]+: |#\d+L?|\[[A-Z_.]+\] | SQLSTATE: \w+", "", shown)[:300]


def without_settings(message: str) -> str:
    """Return a message without sentences that propose a setting of Spark: users cannot set them."""
    sentences = re.split(r"(?<=[.?!])\s+", message)
    return " ".join(each for each in sentences if not _SETTING.search(each))


_SETTING = re.compile(r"\bspark\.(?!apache\.)[a-z]+\.\w|^If necessary set ")


def _misspelt(read: str) -> str | None:
    """Return a hint if one of the last words before the syntax error resembles a keyword."""
    for word in re.findall(r"\w+", read)[-2:]:
        close = get_close_matches(word.upper(), _CLAUSES, 1, 0.75)
        if close and word.upper() not in _CLAUSES:
            return f'Did you mean {close[0]} instead of "{word}"?'
    return None


_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "SELECT", "JOIN")


_HINTS = {
    "CAST_INVALID_INPUT": "Use try_cast to turn values that do not fit into NULL.",
    "DIVIDE_BY_ZERO": "Use try_divide to get NULL where the divisor is 0.",
    "ARITHMETIC_OVERFLOW": "Cast to a wider type, or use the try_ form of the function.",
}


def _place(error: PySparkException, query: Span) -> Span:
    """Return the place of the error in the query, or the whole query."""
    contexts: list[Any] = []
    try:
        contexts = [c for c in error.getQueryContext() if c.fragment() and not c.objectName()]
    except Exception:  # noqa: BLE001  (some Spark errors have contexts that cannot be asked)
        contexts = []
    for context in contexts:
        start, end = context.startIndex(), context.stopIndex() + 1
        if 0 <= start < end <= query.end - query.start:
            return Span(query.text, query.start + start, query.start + end, query.file, query.line)
    found = _PLACE.search(str(error))
    if found is None:
        return query
    line, column = int(found[1]), int(found[2])
    lines = query.text[query.start : query.end].split("\n")
    if line > len(lines):
        return query
    start = query.start + sum(len(text) + 1 for text in lines[: line - 1]) + column
    start = min(start, query.end - 1)
    word = re.match(r"\w+|.", query.text[start : query.end], re.DOTALL)
    end = start + (len(word[0]) if word else 1)
    return Span(query.text, start, end, query.file, query.line)
