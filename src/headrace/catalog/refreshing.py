"""The refresh policy of a view: when it reads the changes of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


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


_UNITS: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


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
