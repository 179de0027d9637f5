"""Patterns of keys with columns in braces, such as ``user:{user_id}``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import Code, HeadraceError
from headrace.serving.text_columns import text_column

if TYPE_CHECKING:
    from collections.abc import Sequence

_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]+)\}|[^{}]+")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Literal text before, between and after columns; different values give different texts.

    With several columns, ``%`` and the first character of each literal between columns are escaped
    as ``%XX`` in values, so that the end of a value is unambiguous. The value of a single column is
    not escaped.
    """

    columns: tuple[str, ...]
    literals: tuple[str, ...]
    """One more than ``columns``."""

    @classmethod
    def of(cls, text: str) -> Pattern:
        """Parse a pattern; ``{{`` and ``}}`` are literal braces.

        Raises:
            HeadraceError: ``invalid`` if it has a column twice, no literal between two columns or
                one that begins with ``%``, or an unclosed brace.
        """
        columns: list[str] = []
        literals = [""]
        at = 0
        while at < len(text):
            found = _PIECE.match(text, at)
            if found is None:
                raise _wrong(text, "Write a column as {name}, and a brace as {{ or }}.")
            at = found.end()
            if found[1] is None:
                literals[-1] += found[0][0] if found[0] in ("{{", "}}") else found[0]
                continue
            if found[1] in columns:
                raise _wrong(text, f"Write column {found[1]} once.")
            if columns and (not literals[-1] or literals[-1].startswith("%")):
                raise _wrong(text, "Write a separator between two columns, as in {a}:{b}.")
            columns.append(found[1])
            literals.append("")
        return cls(tuple(columns), tuple(literals))

    def of_rows(self, rows: pa.Table) -> pa.Array:
        """Return the text of each row as a string array; NULL if a column of it is NULL."""
        if not self.columns:
            return pa.array([self.literals[0]] * rows.num_rows, pa.string())
        pieces: list[object] = [self.literals[0]]
        for name, literal in zip(self.columns, self.literals[1:], strict=True):
            written = text_column(rows[name])
            for character in self._escaped:
                written = pc.replace_substring(written, character, _percent(character))
            pieces += [written, literal]
        return pc.binary_join_element_wise(*pieces, "")

    def values(self, text: str) -> list[str] | None:
        """Return the texts of the columns in a text of this pattern; None for another text."""
        any_ = "[^" + re.escape("".join(self._escaped[1:])) + "]*" if self._escaped else ".*"
        pattern = re.escape(self.literals[0]) + "".join(
            f"({any_}){re.escape(literal)}" for literal in self.literals[1:]
        )
        found = re.fullmatch(pattern, text, re.DOTALL)
        if found is None:
            return None
        return [unquote(value) for value in found.groups()] if self._escaped else [*found.groups()]

    @property
    def glob(self) -> str:
        """A glob of Redis that matches all texts of the pattern, and possibly others."""
        return "*".join(re.sub(r"([*?\[\]\\^-])", r"\\\1", each) for each in self.literals)

    @property
    def _escaped(self) -> Sequence[str]:
        if len(self.columns) <= 1:
            return ()
        return ("%", *dict.fromkeys(each[0] for each in self.literals[1:-1]))


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def _wrong(text: str, hint: str) -> HeadraceError:
    return HeadraceError(Code.INVALID, f"'{text}' is not a pattern of columns", hint=hint)
