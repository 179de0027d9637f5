"""Typed options of connectors: a dataclass per connector, filled from ``key = value`` pairs.

Options of clients of stores: user, password and TLS.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

from headrace.errors import Code, HeadraceError, meant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.errors import Span
    from headrace.planning.sql import Option


SecretName = NewType("SecretName", str)
"""The type of an option whose value is the name of a secret."""


class Alters(StrEnum):
    """Whether ``ALTER SINK`` may change an option."""

    FREELY = "freely"
    """At any time: it affects later writes only."""
    ADDRESS = "address"
    """How the target is reached: the new address must lead to the same target."""
    NEVER = "never"
    """Where a sink writes, in which form, or how it begins."""


Options = TypeVar("Options")

_WORDS = {"true": True, "false": False}
_UNITS = {
    **dict.fromkeys(("ms", "millis", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_DURATION = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})?")


@dataclass(frozen=True, slots=True)
class Given:
    """One option of a statement; if ``secret``, the value is the name of a secret."""

    key: str
    value: str = field(repr=False)
    span: Span | None = None
    secret: bool = False

    @classmethod
    def of(cls, options: Iterable[Option]) -> list[Given]:
        """Return the options of a statement."""
        return [cls(o.key, o.value, o.span, o.secret) for o in options]


def option(
    *keys: str,
    default: Any = MISSING,
    convert: Callable[[str], Any] | None = None,
    prefix: str | None = None,
    alters: Alters | None = None,
) -> Any:
    """Return a field of a dataclass of options, written under any of these keys.

    The default key is the field's name. ``convert`` turns the text into the value, or raises a
    HeadraceError without a span. With a ``prefix``, the field is a tuple of all options whose key
    begins with it, as pairs of key and value. Each option of a sink has ``alters``: whether ALTER
    SINK may change it.
    """
    metadata = {"keys": keys, "convert": convert, "prefix": prefix, "alters": alters}
    return field(default=default, metadata=metadata)


def keys_of(cls: type[Any]) -> frozenset[str]:
    """Return all keys of the options of a dataclass, except options with a prefix."""
    found = (each for each in fields(cls) if not each.metadata.get("prefix"))
    return frozenset(key for each in found for key in each.metadata.get("keys") or (each.name,))


def required_keys(cls: type[Any]) -> frozenset[str]:
    """Return the keys of the options of a dataclass that have no default."""
    return frozenset(
        key
        for each in fields(cls)
        if each.default is MISSING and each.default_factory is MISSING
        for key in each.metadata.get("keys") or (each.name,)
    )


def alters(cls: type[Any], key: str) -> Alters | None:
    """Return whether the option of a lower-case key may change; None for an unknown key."""
    for each in fields(cls):
        prefix = each.metadata.get("prefix")
        names = each.metadata.get("keys") or (each.name,)
        if key.startswith(prefix) if prefix else key in names:
            found: Alters | None = each.metadata.get("alters")
            return found
    return None


def prefixes_of(cls: type[Any]) -> tuple[str, ...]:
    """Return the prefixes of a dataclass's options that have one."""
    return tuple(p for each in fields(cls) if (p := each.metadata.get("prefix")))


def share(text: str) -> float:
    """Parse a fraction from 0 to 1."""
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not a share", hint="Write a number from 0 to 1, as in 0.05."
        )
    return found


def seconds(text: str) -> float:
    """Parse a duration into seconds: ``30 s``, ``500 ms``, ``2 min``, or a number of seconds."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not a duration", hint="Write it as in: 500 ms, 30 s, 2 min."
        )
    return float(found[1]) * _UNITS[found[2] or "s"]


def moment(text: str) -> int:
    """Parse a timestamp, by default in UTC, or microseconds since 1970; return the latter."""
    if text.isdigit():
        return int(text)
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' is not a timestamp",
            hint="Write it as in: 2026-01-31 10:15:00, in UTC.",
        ) from None
    at = found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found
    return (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def read_options(
    cls: type[Options], given: Iterable[Given], what: str, others: Iterable[str] = ()
) -> Options:
    """Parse given options into an instance of a dataclass; ``what`` names their owner in messages.

    ``others`` are further keys to suggest for one that is misspelt.

    Raises:
        HeadraceError: ``invalid``, at the option's span, if it is unknown, given twice or has an
            invalid value; or if a required option is missing.
    """
    types = _types(cls)
    by_key = {
        key: each
        for each in fields(cls)  # type: ignore[arg-type]
        if not each.metadata.get("prefix")
        for key in (each.metadata.get("keys") or (each.name,))
    }
    prefixes = prefixes_of(cls)
    values: dict[str, Any] = {}
    groups: dict[str, dict[str, str]] = {}
    for one in given:
        known = by_key.get(one.key.lower())
        group = next((p for p in prefixes if one.key.lower().startswith(p)), None)
        if group is not None:
            if one.key.lower() in groups.setdefault(group, {}):
                raise _wrong(f'option "{one.key}" is given twice', "Give it once.", one)
            groups[group][one.key.lower()] = one.value
            continue
        if known is None:
            hint = meant(one.key, (*by_key, *others), f"There are: {', '.join(by_key)}.")
            raise _wrong(f'option "{one.key}" of {what} does not exist', hint, one)
        if known.name in values:
            raise _wrong(f'option "{one.key}" is given twice', "Give it once.", one)
        convert = known.metadata.get("convert")
        values[known.name] = _value(one, types[known.name], convert)
    for each in fields(cls):  # type: ignore[arg-type]
        if group := each.metadata.get("prefix"):
            values[each.name] = tuple(groups.get(group, {}).items())
            continue
        if each.default is MISSING and each.default_factory is MISSING and each.name not in values:
            key = (each.metadata.get("keys") or (each.name,))[0]
            raise HeadraceError(
                Code.INVALID, f"{what} has no {key}", hint=f"Add {key} = '...' to its options."
            )
    return cls(**values)


def stored_options(options: Any) -> tuple[tuple[str, str], ...]:
    """Return options as pairs of first key and text for the catalog; secrets by their names."""
    found = []
    for each in fields(options):
        value = getattr(options, each.name)
        if each.metadata.get("prefix"):
            found += value
        elif value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found.append(((each.metadata.get("keys") or (each.name,))[0], text))
    return tuple(found)


def used_secrets(options: Any) -> list[str]:
    """Return the names of the secrets among options."""
    types = _types(type(options))
    named = [each.name for each in fields(options) if types[each.name] is SecretName]
    return [value for name in named if (value := getattr(options, name)) is not None]


def given_again(cls: type[Any], stored: Iterable[tuple[str, str]]) -> list[Given]:
    """Return the result of :func:`stored_options` as a statement would give it."""
    types = _types(cls)
    secret = {
        (each.metadata.get("keys") or (each.name,))[0]
        for each in fields(cls)
        if types[each.name] is SecretName
    }
    return [Given(key, value, secret=key in secret) for key, value in stored]


def restored_options(cls: type[Options], stored: Iterable[tuple[str, str]], what: str) -> Options:
    """Return the options from the result of :func:`stored_options`."""
    return read_options(cls, given_again(cls, stored), what)


def _types(cls: type[Any]) -> dict[str, Any]:
    """Return the types of the fields; T for a field of type ``T | None``."""
    hints = get_type_hints(cls)
    return {
        name: next(each for each in get_args(hint) if each is not NoneType)
        if isinstance(hint, UnionType) or get_origin(hint) is Union
        else hint
        for name, hint in hints.items()
    }


def _value(given: Given, type_: Any, convert: Callable[[str], Any] | None) -> Any:
    if type_ is SecretName:
        if not given.secret:
            raise _wrong(
                f'option "{given.key}" is a secret, and is not written into a statement',
                f"CREATE SECRET name FROM ENV 'VARIABLE', then {given.key} = SECRET name.",
                given,
            )
        return SecretName(given.value)
    if given.secret:
        raise _wrong(f'option "{given.key}" is not a secret', "Write its value.", given)
    if convert is not None:
        try:
            return convert(given.value)
        except HeadraceError as error:
            raise error.at(given.span) if given.span is not None else error from error
    text = given.value
    if type_ is bool:
        if text.lower() not in _WORDS:
            raise _is_not(given, 'Write "true" or "false".')
        return _WORDS[text.lower()]
    if type_ is int:
        if not text.isascii() or not text.isdigit():
            raise _is_not(given, "Write a whole number from 0 on, in digits.")
        return int(text)
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        known = [str(each) for each in type_]
        if text.lower() not in known:
            raise _is_not(given, meant(text, known, f"Use {_or(known)}."))
        return type_(text.lower())
    return text


def _or(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _is_not(given: Given, hint: str) -> HeadraceError:
    return _wrong(f"'{given.value}' is not a value of option \"{given.key}\"", hint, given)


def _wrong(primary: str, hint: str, given: Given) -> HeadraceError:
    return HeadraceError(Code.INVALID, primary, hint=hint, span=given.span)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLogin:
    """Options for user, password and TLS; certificates and keys are paths of files."""

    user: str | None = option("user", "username", default=None, alters=Alters.FREELY)
    password: SecretName | None = option("password", default=None, alters=Alters.FREELY)
    tls: bool = option("tls", "ssl", default=False, alters=Alters.FREELY)
    authority: str | None = option(
        "ssl certificate authority", "ssl_ca_certs", default=None, alters=Alters.FREELY
    )
    certificate: str | None = option(
        "ssl certificate", "ssl_certfile", default=None, alters=Alters.FREELY
    )
    private_key: str | None = option("ssl key", "ssl_keyfile", default=None, alters=Alters.FREELY)
