"""Named JSON settings stored in the ledger: secrets, connections, captures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.errors import Span
    from headrace.storage.ledger import Ledger


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NamedSettings:
    """JSON values by name, stored as one setting of the ledger."""

    ledger: Ledger
    key: str

    def all(self) -> dict[str, Any]:
        """Return the values, in the order of their names."""
        return dict(sorted((self.ledger.settings.get(self.key) or {}).items()))

    def put(self, name: str, value: Any) -> None:
        """Store a value, replacing an earlier one."""
        self.ledger.settings.set(self.key, {**self.all(), name: value})

    def remove(self, name: str) -> None:
        """Delete the value of a name."""
        self.ledger.settings.set(
            self.key, {each: v for each, v in self.all().items() if each != name}
        )


def named(what: str, name: str, known: Mapping[str, T], created: str, span: Span | None) -> T:
    """Return the value of a name; ``created`` is the statement that creates it, for the hint.

    Raises:
        HeadraceError: ``invalid``, at the span, if the name is unknown.
    """
    if name in known:
        return known[name]
    raise unknown(what, name, known, created, span)
