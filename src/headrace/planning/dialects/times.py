"""Functions of time whose units are words: EXTRACT, DATE_TRUNC, differences, FLOOR(x TO unit)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.planning.dialects.tree import Found, Node, is_group
from headrace.planning.sql.lexer import Token, TokenKind

if TYPE_CHECKING:
    from headrace.planning.dialects.writer import Form, Site


_UNITS = (
    *("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"),
    *("MILLISECOND", "MICROSECOND"),
)
_TRUNCATED = frozenset({*_UNITS, "YYYY", "YY", "MON", "MM", "DD"})
_OF_DAY = ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_MONDAYS = "Use ISOWEEK, or WEEK(MONDAY), whose weeks begin on Mondays."
_ELAPSED = "Use TIMESTAMPDIFF(unit, start, end), the whole units that have passed."
_SPARKS = (
    "Use TIMESTAMPDIFF(unit, start, end) for the whole units that have passed, as Spark has it."
)


def _unit(word: str) -> str:
    """Return a unit in the singular, as in Spark; unknown words unchanged."""
    upper = word.upper()
    return upper[:-1] if upper[:-1] in _UNITS else upper


def _extract(site: Site) -> Found | None:
    """``EXTRACT(field FROM x)``."""
    if len(site.arguments) != 1 or len(site.arguments[0]) < 3:  # noqa: PLR2004 - field FROM x
        return None
    field, from_, *value = site.arguments[0]
    if from_.word != "FROM" or not isinstance(field, Token):
        return None
    return _field(site, field.text.strip("'\"").upper(), tuple(value))


def _date_part(site: Site) -> Found | None:
    """``DATE_PART('field', x)``."""
    field = site.literal(0)
    if field is None or len(site.arguments) != 2:  # noqa: PLR2004
        return None
    return _field(site, field.upper(), site.arguments[1])


def _field(site: Site, field: str, value: tuple[Node, ...]) -> Found | None:
    match _unit(field):
        case "DOW":
            raise site.refused(
                "EXTRACT(DOW ...) is not supported",
                "Use dayofweek(x) for Spark's, dayofweek(x) - 1 for PostgreSQL's.",
                "Sunday is 0 in PostgreSQL and Snowflake, and 1 in Spark.",
            )
        case "DAYOFWEEK":
            return site.written("dayofweek({0})", [value])
        case "ISODOW":
            return site.written("(weekday({0}) + 1)", [value])
        case "ISOYEAR":
            return site.written("EXTRACT(YEAROFWEEK FROM {0})", [value])
        case "ISOWEEK":
            return site.written("weekofyear({0})", [value])
        case "DOY" | "DAYOFYEAR":
            return site.written("dayofyear({0})", [value])
        case "DATE":
            return site.written("CAST({0} AS DATE)", [value])
        case "EPOCH" | "EPOCH_SECOND":
            return site.written("(unix_micros({0}) / CAST(1000000 AS DECIMAL(7, 0)))", [value])
        case "MILLISECOND" | "MICROSECOND":
            raise site.refused(
                f"EXTRACT({field} ...) is not supported",
                "Use EXTRACT(SECOND FROM x), which has six decimals.",
                "PostgreSQL counts from the minute, BigQuery from the second.",
            )
        case _:
            return None


def _date_trunc(site: Site) -> Found | None:
    """``DATE_TRUNC('unit', x)``, BigQuery's ``DATE_TRUNC(x, UNIT)``, Snowflake's without quotes."""
    if len(site.arguments) != 2:  # noqa: PLR2004
        return None
    unit = site.literal(0)
    if unit is not None:
        return _truncated(site, unit)
    first, second = site.bare(0), _part(site, 1)
    if _unit(first) in _UNITS and not second:
        return site.written(f"date_trunc('{_unit(first)}', {{0}})", site.arguments[1:])
    return _trunc_by(site, "date", second) if second else None


def _truncated(site: Site, unit: str) -> Found | None:
    if _unit(unit) not in _TRUNCATED:
        raise site.refused(
            f"date_trunc to '{unit}' is not supported",
            f"There are {', '.join(_UNITS)}.",
            "Spark would give NULL for each row.",
        )
    if unit.upper() == _unit(unit):
        return None
    return site.written(f"date_trunc('{_unit(unit)}', {{0}})", site.arguments[1:])


def _part(site: Site, which: int) -> str:
    """Return BigQuery's part of a date, such as ``MONTH`` or ``WEEK(MONDAY)``; "" otherwise."""
    nodes = site.arguments[which] if which < len(site.arguments) else ()
    word = nodes[0].word if nodes else ""
    if len(nodes) == 2 and word == "WEEK" and is_group(nodes[1]):  # noqa: PLR2004
        inside = getattr(nodes[1], "inside", ())
        return f"WEEK({inside[0].word})" if inside else ""
    known = word in _UNITS or word in {"ISOWEEK", "ISOYEAR"}
    return word if len(nodes) == 1 and known else ""


def _timestamp_trunc(site: Site) -> Found | None:
    part = _part(site, 1)
    return _trunc_by(site, "timestamp", part) if len(site.arguments) == 2 and part else None  # noqa: PLR2004


def _time_trunc(site: Site) -> Found | None:
    """``TIME_TRUNC(t, HOUR)``, which Spark has with the unit first."""
    part = _part(site, 1)
    if len(site.arguments) != 2 or not part:  # noqa: PLR2004
        return None
    if part not in _OF_DAY:
        raise site.refused(
            f"TIME_TRUNC to {part} is not supported", f"There are {', '.join(_OF_DAY)}."
        )
    return site.written(f"time_trunc('{part}', {{0}})", site.arguments[:1])


def _trunc_by(site: Site, type_: str, part: str) -> Found:
    """Truncate as BigQuery does: a WEEK begins on Sunday, and a date stays a date."""
    value = site.arguments[:1]
    if part == "ISOYEAR" or (
        part.startswith("WEEK(") and part not in {"WEEK(MONDAY)", "WEEK(SUNDAY)"}
    ):
        raise site.refused(f"truncating to {part} is not supported", _MONDAYS)
    if type_ == "date":
        match part:
            case "WEEK" | "WEEK(SUNDAY)":
                return site.written("date_sub({0}, dayofweek({0}) - 1)", value)
            case "ISOWEEK" | "WEEK(MONDAY)":
                return site.written("trunc({0}, 'WEEK')", value)
            case "DAY":
                return site.written("CAST({0} AS DATE)", value)
            case "YEAR" | "QUARTER" | "MONTH":
                return site.written(f"trunc({{0}}, '{part}')", value)
            case _:
                raise site.refused(f"DATE_TRUNC to {part} is not supported", "Use TIMESTAMP_TRUNC.")
    match part:
        case "WEEK" | "WEEK(SUNDAY)":
            return site.written(
                "(date_trunc('WEEK', {0} + INTERVAL 1 DAY) - INTERVAL 1 DAY)", value
            )
        case "ISOWEEK" | "WEEK(MONDAY)":
            return site.written("date_trunc('WEEK', {0})", value)
        case _:
            return site.written(f"date_trunc('{part}', {{0}})", value)


def _date_diff(site: Site) -> Found | None:
    """``DATE_DIFF(end, start, PART)``: the number of boundaries of the part between two dates."""
    part = _part(site, 2)
    if len(site.arguments) != 3 or not part:  # noqa: PLR2004
        return _datediff(site)
    a, b = "CAST({0} AS DATE)", "CAST({1} AS DATE)"
    days = "(datediff({}, {}) div 7)"
    forms = {
        "DAY": f"datediff({a}, {b})",
        "WEEK": days.format(
            f"date_sub({a}, dayofweek({a}) - 1)", f"date_sub({b}, dayofweek({b}) - 1)"
        ),
        "ISOWEEK": days.format(f"trunc({a}, 'WEEK')", f"trunc({b}, 'WEEK')"),
        "MONTH": f"((year({a}) - year({b})) * 12 + month({a}) - month({b}))",
        "QUARTER": f"((year({a}) - year({b})) * 4 + quarter({a}) - quarter({b}))",
        "YEAR": f"(year({a}) - year({b}))",
    }
    forms["WEEK(SUNDAY)"], forms["WEEK(MONDAY)"] = forms["WEEK"], forms["ISOWEEK"]
    if part not in forms:
        raise site.refused(f"DATE_DIFF by {part} is not supported", _ELAPSED)
    return site.written(f"CAST({forms[part]} AS BIGINT)")


def _timestamp_diff(site: Site) -> Found | None:
    """``TIMESTAMP_DIFF(end, start, PART)``: whole units; the part is never longer than a day."""
    part = _part(site, 2)
    if len(site.arguments) != 3 or not part:  # noqa: PLR2004
        return None
    if part not in {"DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND"}:
        raise site.refused(f"TIMESTAMP_DIFF by {part} is not supported", _ELAPSED)
    return site.written(f"timestampdiff({part}, {{1}}, {{0}})")


def _datediff(site: Site) -> Found | None:
    """Refuse ``DATEDIFF(unit, start, end)``, which has two meanings."""
    unit = _unit(site.bare(0) or site.literal(0) or "")
    if len(site.arguments) != 3 or unit not in _UNITS:  # noqa: PLR2004
        return None
    raise site.refused(
        f"{site.name} with a unit is not supported",
        f"{_SPARKS} For boundaries crossed, subtract parts: year(b) - year(a), datediff(b, a).",
        "Snowflake counts the boundaries that are crossed, Spark the whole units that have passed.",
    )


def _added(sign: str, *, own: bool) -> Form:
    """``DATE_ADD(x, INTERVAL n UNIT)``; ``own``: Spark has a function of this name, for days."""

    def form(site: Site) -> Found | None:
        if len(site.arguments) != 2 or site.arguments[1][0].word != "INTERVAL":  # noqa: PLR2004
            return None if own else _unknown(site)
        return site.written(f"({{0}} {sign} {{1}})")

    return form


def _unknown(site: Site) -> Found:
    raise site.refused(f"{site.name} takes a time and an INTERVAL", "Write ts + INTERVAL 1 DAY.")


def _timestampadd(site: Site) -> Found | None:
    """Units in the plural, or between quotes."""
    if len(site.arguments) != 3:  # noqa: PLR2004
        return None
    word = site.bare(0) or site.literal(0) or ""
    unit = _unit(word)
    if unit not in _UNITS or site.bare(0) == unit:
        return None
    name = "timestampdiff" if site.name == "TIMESTAMPDIFF" else "timestampadd"
    return site.written(f"{name}({unit}, {{0}}, {{1}})", site.arguments[1:])


def _dateadd(site: Site) -> Found | None:
    """``DATEADD`` with a unit in the plural or in quotes, which Spark does not know."""
    return None if site.bare(0) in _UNITS else KEEPS_DATES(site)


_LONG = {
    "DAY": "1 DAY",
    "WEEK": "7 DAY",
    "MONTH": "1 MONTH",
    "QUARTER": "3 MONTH",
    "YEAR": "1 YEAR",
}
"""The units of a date, each as a Spark interval with one field."""


def _keeping_dates(site: Site) -> Found | None:
    """``DATEADD(DAYS, n, x)``, ``DATESUB``: a date stays a date, unlike in Spark."""
    if len(site.arguments) != 3:  # noqa: PLR2004
        return None
    unit = _unit(site.bare(0) or site.literal(0) or "")
    if unit not in _UNITS:
        return None
    back = site.name.endswith("SUB")
    if unit not in _LONG or site.literal(2) is not None:
        count = "-({0})" if back else "{0}"
        return site.written(f"timestampadd({unit}, {count}, {{1}})", site.arguments[1:])
    times, field = _LONG[unit].split()
    count = "{0}" if times == "1" else f"({{0}}) * {times}"
    sign = "-" if back else "+"
    return site.written(f"({{1}} {sign} CAST({count} AS INTERVAL {field}))", site.arguments[1:])


KEEPS_DATES: Form = _keeping_dates
"""``DATEADD(unit, n, x)`` of ksqlDB and Snowflake: a date if ``x`` is a date."""


def _timestampsub(site: Site) -> Found | None:
    unit = _unit(site.bare(0) or site.literal(0) or "")
    if len(site.arguments) != 3 or unit not in _UNITS:  # noqa: PLR2004
        return None
    return site.written(f"timestampadd({unit}, -({{0}}), {{1}})", site.arguments[1:])


def _rounded(site: Site) -> Found | None:
    """``FLOOR(x TO HOUR)``, ``CEIL(x TO HOUR)``."""
    nodes = site.arguments[0] if len(site.arguments) == 1 else ()
    if len(nodes) < 3 or nodes[-2].word != "TO":  # noqa: PLR2004 - x TO unit
        return None
    unit, value = _unit(nodes[-1].word), [nodes[:-2]]
    if unit not in _UNITS:
        raise site.refused(
            f"{site.name} to {nodes[-1].text} is not supported", f"There are {', '.join(_UNITS)}."
        )
    floor = f"date_trunc('{unit}', {{0}})"
    if site.name == "FLOOR":
        return site.written(floor, value)
    whole = f"{floor} = CAST({{0}} AS TIMESTAMP)"
    return site.written(
        f"CASE WHEN {whole} THEN {floor} ELSE timestampadd({unit}, 1, {floor}) END", value
    )


def _to_timestamp_ltz(site: Site) -> Found | None:
    """``TO_TIMESTAMP_LTZ(number, 0 or 3)``."""
    if len(site.arguments) != 2 or len(site.arguments[1]) != 1:  # noqa: PLR2004
        return None
    digits = site.arguments[1][0]
    if not isinstance(digits, Token) or digits.kind is not TokenKind.NUMBER:
        return None
    forms = {"0": "timestamp_seconds({0})", "3": "timestamp_millis({0})"}
    if digits.text not in forms:
        raise site.refused(
            "TO_TIMESTAMP_LTZ takes a precision of 0 or 3", "0 is seconds, 3 milliseconds."
        )
    return site.written(forms[digits.text])


TIMES: dict[str, Form] = {
    "EXTRACT": _extract,
    "DATE_PART": _date_part,
    "DATEPART": _date_part,
    "DATE_TRUNC": _date_trunc,
    "TIMESTAMP_TRUNC": _timestamp_trunc,
    "DATETIME_TRUNC": _timestamp_trunc,
    "TIME_TRUNC": _time_trunc,
    "DATE_DIFF": _date_diff,
    "DATETIME_DIFF": _date_diff,
    "TIMESTAMP_DIFF": _timestamp_diff,
    "DATEDIFF": _datediff,
    "TIMEDIFF": _datediff,
    "DATE_ADD": _added("+", own=True),
    "DATE_SUB": _added("-", own=True),
    "TIMESTAMP_ADD": _added("+", own=False),
    "TIMESTAMP_SUB": _added("-", own=False),
    "DATETIME_ADD": _added("+", own=False),
    "DATETIME_SUB": _added("-", own=False),
    "DATEADD": _dateadd,
    "DATESUB": KEEPS_DATES,
    "TIMESTAMPSUB": _timestampsub,
    "TIMESTAMPADD": _timestampadd,
    "TIMESTAMPDIFF": _timestampadd,
    "FLOOR": _rounded,
    "CEIL": _rounded,
    "CEILING": _rounded,
    "TO_TIMESTAMP_LTZ": _to_timestamp_ltz,
}
"""The functions of this module, by name."""
