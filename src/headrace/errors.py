"""Errors as API: a stable code, a message, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Code(StrEnum):
    """What the caller can do about an error."""

    INVALID = "invalid"
    """The request is wrong: change it."""
    UNSUPPORTED = "unsupported"
    """The request is meaningful but not served: use another form."""
    CONFLICT = "conflict"
    """Another writer or object is in the way: resolve that, then retry."""
    UNAVAILABLE = "unavailable"
    """Something outside is down or not ready: retry later."""
    CORRUPT = "corrupt"
    """Stored data fails its checksum or is missing: restore or rebuild it."""
    INTERNAL = "internal"
    """A defect of Headrace: report it."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch ``[start, end)`` of characters in ``text``, which may come from a file.

    ``line`` is the number in the file of the first line of ``text``, counted from 1.
    """

    text: str
    start: int
    end: int
    file: str | None = None
    line: int = 1

    @property
    def position(self) -> tuple[int, int]:
        """Line and column, both counted from 1, of the start."""
        before = self.text[: self.start]
        return self.line + before.count("\n"), self.start - (before.rfind("\n") + 1) + 1

    def __str__(self) -> str:
        """Show the line with carets under the stretch, as in a compiler's message."""
        number, column = self.position
        lines = self.text.split("\n")
        shown = lines[number - self.line] if self.text else ""
        width = max(1, min(self.end - self.start, len(shown) - column + 1))
        gutter = f"{number:>4} | "
        # Tabs keep their width, so that the carets stand under the word they mean.
        blank = "".join("\t" if c == "\t" else " " for c in shown[: column - 1])
        place = f"  --> {self.file}:{number}:{column}\n" if self.file else ""
        return f"{place}{gutter}{shown}\n{' ' * len(gutter)}{blank}{'^' * width}"


class HeadraceError(Exception):
    """Everything that Headrace refuses or fails at, with its place and a hint.

    The primary message is lower case without a full stop; ``detail`` and ``hint`` are sentences.
    Instances survive pickling with every field, since they cross process borders.
    """

    def __init__(
        self,
        code: Code,
        primary: str,
        detail: str | None = None,
        hint: str | None = None,
        span: Span | None = None,
    ) -> None:
        super().__init__(code, primary, detail, hint, span)
        self.code = code
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.span = span

    def at(self, span: Span) -> HeadraceError:
        """Return the same error with its place, unless it has one already."""
        if self.span is not None:
            return self
        return HeadraceError(self.code, self.primary, self.detail, self.hint, span)

    def __str__(self) -> str:
        parts = [f"error[{self.code}]: {self.primary}"]
        if self.span is not None:
            parts.append(str(self.span))
        if self.detail is not None:
            parts.append(f"detail: {self.detail}")
        if self.hint is not None:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


def nearest(word: str, known: list[str] | tuple[str, ...]) -> str | None:
    """Return the known word closest to ``word``, or None where none is close."""
    from difflib import get_close_matches  # noqa: PLC0415  (only errors pay for it)

    folded = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[found[0]] if found else None
