"""How long former states of a view can be read: a number of epochs, or a length of time.

The refresh policy of a view: when it reads the changes of its inputs.

What a build of a view rests on besides its query: versions of node kinds, and of Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass(frozen=True, slots=True)
class KeptHistory:
    """The option ``history`` of a view: how many epochs, or how many seconds; one of them."""

    epochs: int | None = None
    seconds: int | None = None

    def __str__(self) -> str:
        """Return the value as it is given."""
        if self.seconds is None:
            count, unit = self.epochs or 0, "epoch"
        else:
            unit, size = next((u, s) for u, s in _UNITS if self.seconds % s == 0)
            count = self.seconds // size
        return f"{count} {unit}{'' if count == 1 else 's'}"

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {"epochs": self.epochs, "seconds": self.seconds}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> KeptHistory:
        """Return the value that :meth:`to_json` wrote."""
        return cls(value["epochs"], value["seconds"])


class RefreshKind(StrEnum):
    """What triggers a refresh of a view."""

    CONTINUOUS = "continuous"
    """Every epoch."""
    ON_WRITE = "on write"
    """Every epoch; a write returns when the view shows it."""
    EVERY = "every"
    """An interval since the last refresh, or ``REFRESH``."""
    MANUAL = "manual"
    """``REFRESH``."""


@dataclass(frozen=True, slots=True)
class RefreshPolicy:
    """When a view is refreshed; ``seconds`` is the interval of EVERY."""

    kind: RefreshKind = RefreshKind.CONTINUOUS
    seconds: int = 0

    @property
    def lags(self) -> bool:
        """Whether epochs skip the view: it shows its inputs as of its last refresh."""
        return self.kind in (RefreshKind.EVERY, RefreshKind.MANUAL)

    def __str__(self) -> str:
        """Return the policy as a value of the option ``refresh``."""
        if self.kind is not RefreshKind.EVERY:
            return self.kind.value
        unit, size = next((u, s) for u, s in _UNITS if self.seconds % s == 0)
        count = self.seconds // size
        return f"every {count} {unit}{'' if count == 1 else 's'}"

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {"kind": self.kind.value, "seconds": self.seconds}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> RefreshPolicy:
        """Return the policy that :meth:`to_json` wrote."""
        return cls(RefreshKind(value["kind"]), value["seconds"])


CONTINUOUS: Final = RefreshPolicy()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The versions that a build's state and rows rest on."""

    versions: tuple[tuple[str, int], ...]
    """The version of each kind of node and operator of its circuit, by kind, sorted."""
    spark: str
    """Spark's version, if that decides what an expression means; otherwise empty."""

    def to_json(self) -> dict[str, Any]:
        """Return a value that ``json`` can write and :meth:`of_json` reads."""
        return {"versions": dict(self.versions), "spark": self.spark}

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Fingerprint:
        """Return the fingerprint that :meth:`to_json` wrote."""
        return cls(tuple(sorted(value["versions"].items())), value["spark"])
