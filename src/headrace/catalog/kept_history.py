"""How long former states of a view can be read: a number of epochs, or a length of time."""

from __future__ import annotations

from dataclasses import dataclass
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
