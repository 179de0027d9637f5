"""What a build of a view rests on besides its query: versions of node kinds, and of Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
