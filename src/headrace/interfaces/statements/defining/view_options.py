"""The options of a materialized view: history, ttl, swapping, refreshes, its declared key.

``history`` of a view: how long its former states can be read.

``ttl`` of a view: rows whose time column is older than that are removed as time passes.

The option ``auto_swap`` of a view that is replaced: whether the new build serves by itself.

The refresh schedule of a view, in the options of four dialects.

``PRIMARY KEY`` of a materialized view: its columns, and its description in messages.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError, Span, meant
from headrace.interfaces.statements.defining.stream_options import AUTO_SWAP, seconds_of
from headrace.planning.catalog import CONTINUOUS, KeptHistory, RefreshKind, RefreshPolicy
from headrace.planning.dialects import duration_of
from headrace.planning.sql import quote
from headrace.types import TimestampType, require_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.planning.catalog import View
    from headrace.planning.sql import Option, Query
    from headrace.planning.sql.columns import DeclaredKey
    from headrace.types import Schema


HISTORY: Final = "history"
_DEFAULT: Final = "default"
_EPOCHS: Final = re.compile(r"(\d{1,9})(?:\s+epochs?)?", re.IGNORECASE)


def history_of(options: Iterable[Option]) -> KeptHistory | None:
    """Return how long former states of a view are kept; None: as long as those of tables.

    Raises:
        HeadraceError: ``invalid``, at the option, for another value.
    """
    option = next((each for each in options if each.key.lower() == HISTORY), None)
    if option is None or option.value.strip().lower() == _DEFAULT:
        return None
    epochs = _EPOCHS.fullmatch(option.value.strip())
    if epochs is not None:
        return KeptHistory(epochs=int(epochs[1]))
    try:
        return KeptHistory(seconds=seconds_of(option))
    except HeadraceError as error:
        raise HeadraceError(
            Code.INVALID,
            f"'{option.value}' is neither a duration nor a number of epochs",
            hint="Use one such as '30 days' or '1000 epochs', or 'default'.",
            span=option.span,
        ) from error


TTL_OPTIONS = ("ttl", "ttl_column")


def with_ttl(
    query: Query, schema: Schema, names: tuple[str, ...], options: tuple[Option, ...]
) -> Query:
    """Return a view's query with the condition of its option ``ttl``, if given.

    ``schema`` is the query's; ``names`` are the view's columns.

    Raises:
        HeadraceError: ``invalid``, at the option, if it is not a duration, or has no time column.
    """
    given = {option.key.lower(): option for option in options if option.key.lower() in TTL_OPTIONS}
    if not given:
        return query
    if "ttl" not in given:
        raise _wrong(given["ttl_column"], "there is no ttl", "Give the option ttl as well.")
    seconds, column = seconds_of(given["ttl"]), _column(schema, names, given)
    listed = ", ".join(map(quote, names))
    text = (
        f"SELECT * FROM (\n{query.text}\n) AS _kept ({listed}) "
        f"WHERE {quote(column)} >= now() - INTERVAL {seconds} SECONDS"
    )
    return replace(query, text=text, span=Span.whole(text))


def _column(schema: Schema, names: tuple[str, ...], given: dict[str, Option]) -> str:
    """Return the column with a row's time: the named one, or the only one."""
    times = [
        name
        for name, column in zip(names, schema.columns, strict=True)
        if isinstance(column.type, TimestampType)
    ]
    named = given.get("ttl_column")
    if named is not None:
        found = [name for name in times if name.lower() == named.value.lower()]
        if not found:
            hint = f"There are: {', '.join(times)}." if times else "It has no TIMESTAMP column."
            raise _wrong(named, f'column "{named.value}" is not a TIMESTAMP of the view', hint)
        return found[0]
    if len(times) != 1:
        hint = f"Give ttl_column: one of {', '.join(times)}." if times else "Select a TIMESTAMP."
        raise _wrong(given["ttl"], f"the view has {len(times)} TIMESTAMP columns", hint)
    return times[0]


def _wrong(option: Option, what: str, hint: str) -> HeadraceError:
    primary = f'option "{option.key}": {what}'
    return HeadraceError(Code.INVALID, primary, hint=hint, span=option.span)


_OPTIONS: Final = re.compile(r"\s*\b\w+\s*\($")
"""The word before options, and what begins them."""


def without_swap(statement: Span, options: tuple[Option, ...]) -> str:
    """Return the text of a statement without the option: what serves in the end was swapped."""
    text = statement.source
    for option in options:
        if option.key.lower() == AUTO_SWAP and option.span.text is statement.text:
            before = text[: option.span.start - statement.start].rstrip()
            after = text[option.span.end - statement.start :].lstrip()
            if after.startswith(","):
                after = after[1:].lstrip()
            elif before.endswith(","):
                before = before[:-1]
            if before.endswith("(") and after.startswith(")"):
                before, after = _OPTIONS.sub("", before), f" {after[1:].lstrip()}"
            text = before + after
    return text


_SECOND: Final = 1_000_000
_MANUAL: Final = RefreshPolicy(RefreshKind.MANUAL)
_BY_WORD: Final = {
    "continuous": CONTINUOUS,
    "on commit": CONTINUOUS,
    "on write": RefreshPolicy(RefreshKind.ON_WRITE),
    "manual": _MANUAL,
    "on demand": _MANUAL,
}
_INCREMENTAL: Final = ("auto", "incremental", "incremental strict", "full")

REFRESH_OPTIONS: Final = (
    "refresh",
    "refresh_interval_minutes",
    "enable_refresh",
    "target_lag",
    "refresh_policy",
    "refresh_mode",
    "initialize",
    "warehouse",
)
"""The options of views about refreshes: when, how and where."""


def refresh_of(options: tuple[Option, ...]) -> RefreshPolicy | None:
    """Return the refresh policy of a view's options; None if they have none.

    Raises:
        HeadraceError: ``invalid``, at its place, for an invalid value, and for one that contradicts
            another option.
    """
    found: dict[str, tuple[Option, RefreshPolicy]] = {}
    for option in options:
        policy = _policy(option)
        if policy is not None:
            found[option.key.lower()] = (option, policy)
    off = found.get("enable_refresh")
    if off is not None and off[1].kind is RefreshKind.MANUAL:
        found.pop("refresh_interval_minutes", None)  # BigQuery ignores the interval then
    elif off is not None:
        found.pop("enable_refresh")
    if not found:
        return None if off is None else off[1]
    first, *others = found.values()
    for option, policy in others:
        if policy != first[1]:
            raise HeadraceError(
                Code.INVALID,
                f'options "{first[0].key}" and "{option.key}" contradict each other',
                hint="Keep one of them.",
                span=option.span,
            )
    return first[1]


def refresh_note(options: tuple[Option, ...], policy: RefreshPolicy) -> str:
    """Return the note on a view's schedule and on a ``full`` mode, which is incremental here."""
    modes = {
        o.value.lower() for o in options if o.key.lower() in ("refresh_policy", "refresh_mode")
    }
    note = "; a refresh computes what has changed, not all" if "full" in modes else ""
    return (f"; it is refreshed {_in_words(policy)}" if policy.lags else "") + note


def _in_words(policy: RefreshPolicy) -> str:
    return "by REFRESH" if policy.kind is RefreshKind.MANUAL else f"{policy}, and by REFRESH"


def _policy(option: Option) -> RefreshPolicy | None:
    """Return the refresh policy of an option, or None; raise for unknown values."""
    key, value = option.key.lower(), " ".join(option.value.lower().split())
    match key:
        case "refresh":
            return _of_refresh(option, value)
        case "refresh_interval_minutes":
            return _every(option, f"{value} minutes", "Use a number of minutes, as in 60.")
        case "enable_refresh":
            if value not in ("true", "false"):
                raise _not(option, "true or false", "Use true or false.")
            return CONTINUOUS if value == "true" else _MANUAL
        case "target_lag":
            if value == "downstream":
                hint = "Use 'manual', and REFRESH the view together with those that read it."
                raise _unsupported(option, hint)
            return _every(option, value, "Use a duration, as in TARGET_LAG = '1 hour'.")
        case "refresh_policy" | "refresh_mode":
            if value not in _INCREMENTAL:
                raise _not(option, "a refresh policy", f"Use {', '.join(_INCREMENTAL)}.")
        case "initialize" if value != "on_create":
            raise _unsupported(option, "Leave it out: a view has its rows when it is created.")
    return None


def _of_refresh(option: Option, value: str) -> RefreshPolicy:
    if value in _BY_WORD:
        return _BY_WORD[value]
    hint = "Use 'continuous', 'every 1 hour', 'manual' or 'on write'."
    if not value.startswith("every "):
        raise _not(option, "a refresh policy", meant(value, _BY_WORD, hint))
    return _every(option, value.removeprefix("every "), hint)


def _every(option: Option, text: str, hint: str) -> RefreshPolicy:
    interval = text.upper().removeprefix("INTERVAL ").replace("'", "")
    found = duration_of(f"INTERVAL '{interval}'")
    if found is None or found < _SECOND or found % _SECOND:
        raise _not(option, "an interval of whole seconds", hint)
    return RefreshPolicy(RefreshKind.EVERY, found // _SECOND)


def _not(option: Option, what: str, hint: str) -> HeadraceError:
    return HeadraceError(
        Code.INVALID, f"'{option.value}' is not {what}", hint=hint, span=option.span
    )


def _unsupported(option: Option, hint: str) -> HeadraceError:
    return HeadraceError(
        Code.UNSUPPORTED,
        f"{option.key} = {option.value} is not supported",
        hint=hint,
        span=option.span,
    )


def declared_columns(key: DeclaredKey, schema: Schema) -> tuple[str, ...]:
    """Return the columns of a declared key, as the view's schema spells them.

    Raises:
        HeadraceError: ``invalid`` if a column does not exist, ``unsupported`` for its type.
    """
    columns = {column.name.lower(): column for column in schema.columns}
    for name in key.columns:
        if name.lower() not in columns:
            raise HeadraceError(
                Code.INVALID,
                f'column "{name}" of the PRIMARY KEY does not exist in the view',
                hint=meant(name, schema.names, f"There are: {', '.join(schema.names)}."),
                span=key.span,
            )
        try:
            require_key(columns[name.lower()].type)
        except HeadraceError as error:
            raise error.at(key.span) from error
    return tuple(columns[name.lower()].name for name in key.columns)


def key_text(view: View) -> str:
    """Describe the key of a view and what guarantees it, for a message."""
    if not view.key:
        return "at most one row" if view.single else "none is known"
    columns = f"({', '.join(view.key)})"
    if not view.declares_key:
        return f"{columns}: follows from the query"
    if view.checks_key:
        return f"PRIMARY KEY {columns}: checked in each epoch, by a lookup for each inserted row"
    return f"PRIMARY KEY {columns}: follows from the query, so it is not checked"
