"""Settings: the only reader of the environment.

Every setting is a keyword of :func:`headrace.connect`, and an environment variable
``HEADRACE_<NAME>`` gives its default.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from headrace.engine.session import SparkSettings
from headrace.errors import Code, HeadraceError, nearest
from headrace.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "HEADRACE_"
NO_CACHE = "none"
_LEAST_MEMORY = 512
"""Spark does not start with less, in MiB."""
_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1 << 20}
_RANGES: dict[str, tuple[int, int | None]] = {
    "partitions": (1, 1024),
    "epoch_rows": (1, None),
    "fill_rows": (1, None),
    "attempts": (1, 100),
    "recursion_rows": (1, None),
}
"""The least and greatest values of numbers that cannot be just any."""
_NEARLY = 0.8
"""How alike a mistyped name is, of 1: less is another name."""
_NO_SETTING = ("HEADRACE_HISTORY",)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose."""

    master: str = ""
    """The Spark master; by default, this machine with one thread per partition."""
    partitions: int = 0
    """Slices of the hash space, stepped in parallel; by default, one per core, 8 at most."""
    driver_memory: str = "2g"
    """The JVM's heap."""
    cache: str = ""
    """A folder for what makes the next start faster; by default, the user's. ``none``: nothing."""
    continuous: bool = True
    """Make epochs in the background as changes arrive; else only when something waits for them."""
    epoch_rows: int = 1_000_000
    """About how many changes one epoch reads; what one statement wrote is never split."""
    small_rows: int = 20_000
    """Up to how many changes an epoch is stepped in one task instead of one per partition."""
    fill_rows: int = 1_000_000
    """The most rows that one part of a backfill reads."""
    history_epochs: int = 256
    """How many epochs back tables and views can be read."""
    attempts: int = 3
    """How often a step is tried."""
    recursion_rows: int = 4_000_000
    """By how many rows a recursion may change in one epoch, all rounds together."""
    chosen: frozenset[str] = field(default=frozenset(), kw_only=True)
    """The names of those that were given, and are no default; this is no setting itself."""

    @classmethod
    def of(cls, given: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
        """Return the settings that are given, else those of the environment, else the defaults."""
        found = os.environ if environment is None else environment
        kinds = get_type_hints(cls)
        names = setting_names()
        for name in given:
            if name not in names:
                close = nearest(name, names)
                raise HeadraceError(
                    Code.INVALID,
                    f'setting "{name}" does not exist',
                    hint=f'Did you mean "{close}"?' if close else f"There are: {', '.join(names)}.",
                )
        _refuse_mistyped(found, names)
        values: dict[str, Any] = {}
        for name in names:
            variable = _PREFIX + name.upper()
            if name in given:
                values[name] = _checked(name, given[name], kinds[name])
                _require_sense(f'setting "{name}"', name, values[name])
            elif variable in found:
                values[name] = _parsed(variable, found[variable], kinds[name])
                _require_sense(variable, name, values[name])
        return cls(**values, chosen=frozenset(values)).completed(found)

    def completed(self, environment: Mapping[str, str]) -> Settings:
        """Return the settings with what depends on the machine and its user filled in."""
        cores = min(8, os.cpu_count() or 1)
        partitions = self.partitions or cores
        master = self.master or f"local[{partitions}]"
        cache = self.cache or str(_caches(environment) / "headrace")
        return replace(self, partitions=partitions, master=master, cache=cache)

    @property
    def spark(self) -> SparkSettings:
        """What Spark is started with."""
        cache = None if self.cache == NO_CACHE else Path(self.cache)
        return SparkSettings(self.master, self.partitions, self.driver_memory, cache)

    @property
    def runtime(self) -> RuntimeSettings:
        """What epochs keep to."""
        return RuntimeSettings(
            epoch_rows=self.epoch_rows,
            small_rows=self.small_rows,
            fill_rows=self.fill_rows,
            history_epochs=self.history_epochs,
            attempts=self.attempts,
            recursion_rows=self.recursion_rows,
        )


def setting_names() -> list[str]:
    """Return the names of all settings."""
    return [each.name for each in fields(Settings) if not each.kw_only]


def _caches(environment: Mapping[str, str]) -> Path:
    """Return the folder of the user's caches, as the XDG Base Directory Specification has it."""
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir())


def _checked(name: str, value: Any, kind: type) -> Any:
    natural = not isinstance(value, bool) and isinstance(value, int) and value >= 0
    if natural if kind is int else isinstance(value, kind):
        return value
    raise HeadraceError(
        Code.INVALID, f'setting "{name}" cannot be {value!r}', hint=f"Give {_kind(kind)}."
    )


def _refuse_mistyped(environment: Mapping[str, str], names: list[str]) -> None:
    """Refuse a variable that is nearly, but not quite, that of a setting."""
    known = {_PREFIX + name.upper() for name in names} | {*_NO_SETTING}
    for variable in environment:
        if not variable.startswith(_PREFIX) or variable in known:
            continue
        close = get_close_matches(variable.removeprefix(_PREFIX).lower(), names, 1, _NEARLY)
        if close:
            raise HeadraceError(
                Code.INVALID,
                f'environment variable "{variable}" is no setting',
                hint=f'Did you mean "{_PREFIX}{close[0].upper()}"?',
            )


def _require_sense(what: str, name: str, value: Any) -> None:
    """Refuse a value that has the right type, and that nothing could be done with."""
    if name == "driver_memory":
        found = re.fullmatch(r"(\d+)([kmgt])b?", value.strip().lower())
        if found is None or int(found[1]) * _MIB[found[2]] < _LEAST_MEMORY:
            raise HeadraceError(
                Code.INVALID,
                f'{what} cannot be "{value}"',
                hint=f'Give {_LEAST_MEMORY}m or more, such as "2g".',
            )
    if name not in _RANGES:
        return
    least, most = _RANGES[name]
    if value < least or (most is not None and value > most):
        some = f"{least} or more" if most is None else f"a number from {least} to {most}"
        raise HeadraceError(Code.INVALID, f"{what} cannot be {value}", hint=f"Give {some}.")


def _parsed(variable: str, text: str, kind: type) -> Any:
    if kind is bool and text.lower() in ("true", "false", "1", "0"):
        return text.lower() in ("true", "1")
    if kind is int and text.isdigit():
        return int(text)
    if kind is str:
        return text
    raise HeadraceError(Code.INVALID, f'{variable} cannot be "{text}"', hint=f"Give {_kind(kind)}.")


def _kind(kind: type) -> str:
    return {int: "a whole number", bool: "true or false", str: "text"}[kind]
