"""The statements by which a stream or table gets the columns of its definition.

Whether a column has another name, or is gone while another one is new, does not follow from the two
definitions alone. Where it could be either, a comment behind the new column says it: ``-- was old``
or ``-- new``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.deploying.forms import columns_of, type_of
from headrace.deploying.texts import column_text
from headrace.errors import Code, HeadraceError
from headrace.sql import ColumnDefinition, quote, quote_dotted
from headrace.sql.lexer import tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.errors import Span
    from headrace.sql import Statement

_COMMENT: Final = re.compile(
    r"(?im)(?:--|/\*)[ \t]*(?:was[ \t]+`?(?P<was>[^\s`*,;]+)`?|new)[ \t]*(?:\*/|$)"
)
_NUMBERS: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"})


@dataclass(frozen=True, slots=True)
class ColumnSteps:
    """The statements that change columns, in order; those in ``dropping`` come last.

    They can wait until what uses the columns is changed.
    """

    statements: tuple[str, ...] = ()
    dropping: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[str, ...]:
        """All statements, in order."""
        return (*self.statements, *self.dropping)


def column_steps(
    kind: str, name: str, former: Sequence[Statement], wanted: Sequence[Statement]
) -> ColumnSteps:
    """Return the statements after which a relation has the columns of its definition.

    The order of columns is not considered. ``former`` and ``wanted`` are its CREATE and the ALTERs
    after it: those of the database, and of the files. A column that both have is the same one,
    whatever a comment says, so that a comment may stay.

    Raises:
        HeadraceError: ``unsupported`` if it is not certain which column has another name.
    """
    alter = f"ALTER {kind.upper()} {quote_dotted(name)}"
    after = columns_of(wanted)
    origins = _origins(f'{kind} "{name}"', columns_of(former), after)
    kept = {origin.name for origin in origins.values()}
    gone = [each.name for each in columns_of(former) if each.name not in kept]
    wider, renamed, new = list[str](), list[str](), list[ColumnDefinition]()
    for each in after:
        origin = origins.get(each.name)
        if origin is None:
            new.append(each)
            continue
        if type_of(origin) != type_of(each):
            type_ = each.type.span.source
            wider.append(f"{alter} ALTER COLUMN {quote(origin.name)} TYPE {type_}")
        if origin.name != each.name:
            renamed.append(f"{alter} RENAME COLUMN {quote(origin.name)} TO {quote(each.name)}")
    added = [f"{alter} ADD COLUMNS ({', '.join(map(column_text, new))})"] if new else []
    dropped = tuple(f"{alter} DROP COLUMN {quote(each)}" for each in gone)
    return ColumnSteps((*wider, *renamed, *added), dropped)


def _origins(
    title: str, before: Sequence[ColumnDefinition], after: Sequence[ColumnDefinition]
) -> Mapping[str, ColumnDefinition]:
    """Return the former column of each present one that is not new, by its present name.

    Raises:
        HeadraceError: ``unsupported`` if that is not certain.
    """
    known = {each.name.lower(): each for each in before}
    found = {each.name: known[each.name.lower()] for each in after if each.name.lower() in known}
    gone = {key: each for key, each in known.items() if each not in found.values()}
    for at, each in enumerate(after):
        if each.name in found:
            continue
        following = after[at + 1].span.start if at + 1 < len(after) else len(each.span.text)
        said = _said(each.span, following)
        old = None if said is None or said["was"] is None else gone.pop(said["was"].lower(), None)
        if old is not None:
            found[each.name] = old
            continue
        alike = [other.name for other in gone.values() if said is None and _may_be(other, each)]
        if alike:
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'column "{each.name}" of {title} is new, and "{alike[0]}" is gone: it may have'
                " another name, or be another column",
                "Its values would be kept, or lost.",
                f"Write behind it which it is: -- was {alike[0]}, or -- new.",
                each.span,
            )
    return found


def _said(span: Span, following: int) -> re.Match[str] | None:
    """Return the comment that says where a column comes from: behind it, on its last line."""
    line = span.text.find("\n", span.end)
    end = min(following, len(span.text) if line < 0 else line)
    at = span.start
    for token in tokens(span.text, span.start, max(end, span.end)):
        found = _COMMENT.search(span.text[at : token.start])
        if found is not None:
            return found
        at = token.end
    return _COMMENT.search(span.text[at:end])


def _may_be(former: ColumnDefinition, present: ColumnDefinition) -> bool:
    """Whether a column may be a former one under another name: by its type, perhaps a wider one."""
    types = type_of(former), type_of(present)
    return types[0] == types[1] or all(type_[:1] and type_[0] in _NUMBERS for type_ in types)
