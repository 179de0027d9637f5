"""Constructs classes from the parts that their fields name."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


class Injector:
    """Constructs frozen dataclasses, each once, from parts by name.

    A field receives the part with its name, or an instance of the class that ``composed`` has for
    its name, constructed in the same way.
    """

    def __init__(self, parts: Mapping[str, Any], composed: Mapping[str, type[Any]]) -> None:
        self._parts, self._composed = parts, composed
        self._made: dict[type[Any], Any] = {type(part): part for part in parts.values()}

    def of(self, cls: type[T]) -> T:
        """Return the instance of a class: the given part, or one constructed on first use."""
        made: T | None = self._made.get(cls)
        if made is None:
            given = {each.name: self._named(each.name) for each in fields(cls)}  # type: ignore[arg-type]
            made = self._made[cls] = cls(**given)
        return made

    def _named(self, name: str) -> Any:
        return self._parts[name] if name in self._parts else self.of(self._composed[name])
