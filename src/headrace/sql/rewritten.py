"""A query rewritten for Spark, with a mapping of positions back to the original for errors."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import HeadraceError, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class RewrittenRange(NamedTuple):
    """A range of the new text, and the range of the original that it copies or replaces.

    Both are ``[start, end)``. A copy has the length of its origin and maps character by character.
    """

    start: int
    end: int
    old_start: int
    old_end: int
    copied: bool


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A query before and after rewriting; without pieces, both are the same."""

    query: Span
    """The original text."""
    span: Span
    """The text for Spark: a separate text if the query was rewritten."""
    pieces: tuple[RewrittenRange, ...] = ()
    """The parts of the new text, in order and without gaps."""

    @property
    def text(self) -> str:
        """The text for Spark."""
        return self.span.source

    @contextmanager
    def mapping_errors(self) -> Iterator[None]:
        """Map the places of errors from the rewritten query to the original statement."""
        try:
            yield
        except HeadraceError as error:
            if not self.pieces or error.span is None or error.span.text != self.span.text:
                raise
            raise HeadraceError(
                error.code, error.primary, error.detail, error.hint, self.back(error.span)
            ) from error

    def back(self, span: Span) -> Span:
        """Return the place in the original of a place in the new text.

        Generated text maps to the whole clause that it replaces.
        """
        first = self._piece(span.start)
        last = self._piece(max(span.start, span.end - 1))
        start = first.old_start + (span.start - first.start if first.copied else 0)
        end = last.old_start + (span.end - last.start) if last.copied else last.old_end
        return Span(self.query.text, start, max(start, end), self.query.file, self.query.line)

    def _piece(self, at: int) -> RewrittenRange:
        return next((piece for piece in self.pieces if at < piece.end), self.pieces[-1])

    def after(self, first: Rewritten) -> Rewritten:
        """Return one rewriting that applies ``first`` and then this one."""
        if not first.pieces:
            return Rewritten(first.query, self.span, self.pieces)
        if not self.pieces:
            return first
        composed: list[RewrittenRange] = []
        for piece in self.pieces:
            if piece.copied:
                composed += first._copied(piece)
            else:
                place = first.back(Span(first.text, piece.old_start, piece.old_end))
                composed.append(
                    RewrittenRange(piece.start, piece.end, place.start, place.end, copied=False)
                )
        return Rewritten(first.query, self.span, tuple(composed))

    def _copied(self, copy: RewrittenRange) -> list[RewrittenRange]:
        """Return the pieces of a copied range of the new text."""
        found = []
        shift = copy.start - copy.old_start
        for piece in self.pieces:
            start, end = max(piece.start, copy.old_start), min(piece.end, copy.old_end)
            if start >= end:
                continue
            old_start, old_end = piece.old_start, piece.old_end
            if piece.copied:
                old_start += start - piece.start
                old_end = old_start + end - start
            found.append(
                RewrittenRange(start + shift, end + shift, old_start, old_end, piece.copied)
            )
        return found


def unchanged(query: Span) -> Rewritten:
    """Return a query that needs no rewriting."""
    return Rewritten(query, query)


@dataclass(slots=True)
class Rewriting:
    """Builds the new text of a query, from its beginning to its end."""

    query: Span
    _texts: list[str] = field(default_factory=list, init=False)
    _pieces: list[RewrittenRange] = field(default_factory=list, init=False)
    _length: int = field(default=0, init=False)
    _read: int = field(init=False)
    _replaced: Span = field(init=False)

    def __post_init__(self) -> None:
        """Start at the beginning of the query."""
        self._read = self.query.start
        self._replaced = self.query

    def replace(self, span: Span, parts: Sequence[str | tuple[int, int]]) -> None:
        """Copy the text up to a range, and write parts in place of the range.

        A part is text, or the start and the end of a range of the query to copy.
        """
        self._copy(self._read, span.start)
        self._read, self._replaced = span.end, span
        for part in parts:
            if isinstance(part, str):
                self.add(part)
            else:
                self._copy(*part)

    def add(self, text: str) -> None:
        """Add text to the last replacement."""
        self._append(text, self._replaced.start, self._replaced.end, copied=False)

    def copy(self, start: int, end: int) -> None:
        """Copy a range of the query. The text after it is not copied."""
        self._read = self.query.end
        self._copy(start, end)

    def put(self, text: str, start: int, end: int) -> None:
        """Write text in place of a range of the query. The text after it is not copied."""
        self._read = self.query.end
        self._append(text, start, end, copied=False)

    def done(self) -> Rewritten:
        """Copy the rest, and return the result."""
        if not self._texts:
            return unchanged(self.query)
        self._copy(self._read, self.query.end)
        if all(piece.copied for piece in self._pieces) and self._is_whole():
            return unchanged(self.query)
        text = "".join(self._texts)
        span = Span(text, 0, len(text), self.query.file)
        return Rewritten(self.query, span, tuple(self._pieces))

    def _is_whole(self) -> bool:
        return "".join(self._texts) == self.query.source

    def _copy(self, start: int, end: int) -> None:
        self._append(self.query.text[start:end], start, end, copied=True)

    def _append(self, text: str, start: int, end: int, *, copied: bool) -> None:
        if text:
            begin, self._length = self._length, self._length + len(text)
            self._texts.append(text)
            self._pieces.append(RewrittenRange(begin, self._length, start, end, copied))
