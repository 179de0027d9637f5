"""The refresh schedule of a view, in the options of four dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.catalog import CONTINUOUS, RefreshKind, RefreshPolicy
from headrace.dialects import duration_of
from headrace.errors import Code, HeadraceError, meant

if TYPE_CHECKING:
    from headrace.sql import Option

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
