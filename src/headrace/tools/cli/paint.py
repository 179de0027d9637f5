"""Text styles on terminals with colours, and plain text elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

_RESET = "\x1b[0m"
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Paint:
    """Applies styles to text; does nothing if ``coloured`` is false."""

    coloured: bool = False

    def __call__(self, text: str, style: str) -> str:
        """Return the text in a style: bold, dim, red, green, cyan, or empty for plain."""
        if not self.coloured or not text or not style:
            return text
        return f"\x1b[{_CODES[style]}m{text}{_RESET}"
