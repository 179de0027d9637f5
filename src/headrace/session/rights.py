"""The rights of one client: what it may do, and what its errors may show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.parts.stopped import in_sentences
from headrace.session.needs import NamedRelations, Need
from headrace.session.table import TABLE
from headrace.sql import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.engine.engine import Engine
    from headrace.parts.access import Principal
    from headrace.parts.reader import Reader
    from headrace.sql import Statement


@dataclass(frozen=True, slots=True)
class ClientRights:
    """Checks the rights of one client. A client in the database's process may do everything."""

    principal: Principal
    reader: Reader
    engine: Engine

    def require(self, statement: Statement) -> tuple[Need, ...]:
        """Raise if the client lacks a role that a statement needs; return the needed roles.

        An owner of the database needs no lookup: the result is the owner's role.

        Raises:
            HeadraceError: ``forbidden``, at the place; as parsing, if a query cannot be parsed.
        """
        if self.principal.may(Role.OWNER):
            return (Need(Role.OWNER),)
        named = NamedRelations(self.reader, self.engine, self.principal)
        needs = tuple(TABLE[type(statement)].needs(named, statement))
        self._require(needs)
        return needs

    def require_role(self, role: Role, name: str) -> None:
        """Raise if the client lacks a role in the schema of a relation.

        Raises:
            HeadraceError: ``forbidden``.
        """
        self._require([Need.of(role, name)])

    def without_hidden(self, error: HeadraceError, said: str = "") -> HeadraceError:
        """Return an error without the names of relations that the client may not see.

        ``said`` is the client's own text; names in it are kept.
        """
        if self.principal.may(Role.READER):
            return error
        if self._quotes_hidden_rows(error):
            error = HeadraceError(error.code, error.primary, None, error.hint, error.span)
        known_names = said.lower()
        names = (r.name for r in self.reader.catalog if r.name.lower() not in known_names)
        hidden = [name for name in names if not self.principal.sees(name)]
        if not hidden:
            return error
        words = re.compile(rf"(?i)(?<![\w.])(?:{'|'.join(map(re.escape, hidden))})(?![\w.])")

        def known(text: str | None) -> str | None:
            return None if text is None or words.search(text) else text

        primary, span = words.sub("...", error.primary), error.span
        if span is not None and span.file is not None and known(span.text) is None:
            span = None  # the place is in the text of a plain view
        return HeadraceError(error.code, primary, known(error.detail), known(error.hint), span)

    def _quotes_hidden_rows(self, error: HeadraceError) -> bool:
        """Whether an error says why a view stopped: that may quote rows the client may not see."""
        catalog, said = self.reader.catalog, error.detail or ""
        return any(
            in_sentences(entry.detail).removesuffix(".") in said
            and not catalog.sees_all(self.principal.sees, entry.view)
            for entry in self.reader.ledger.head.dirty
            if entry.detail and entry.view in catalog.by_id
        )

    def _require(self, needs: Iterable[Need]) -> None:
        for need in needs:
            if not need.is_met(self.principal):
                raise need.error()
