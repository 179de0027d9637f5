"""Cases as text, in the order in which things happen: for a reader, and to play again.

::

    # wrong rows
    CREATE TABLE t0 (id INT, k INT, PRIMARY KEY (id))

    EPOCH
    t0 | id |    k
    +1 |  1 | NULL

    VIEW view0
    SELECT r0.k AS k FROM t0 r0
"""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from generator.cases import Case, Step, View
from generator.changes import Change, Epoch, Restart
from generator.schemas import Column, Relation
from generator.syntax import Kind, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_RELATION = re.compile(
    r"CREATE (TABLE|STREAM) (\w+) \((.*?)(?:, PRIMARY KEY \((.*)\))?\)$", re.MULTILINE
)
_CLAUSES = re.compile(
    r" ((?:FROM|WHERE|GROUP BY|HAVING|UNION|INTERSECT|EXCEPT|LATERAL VIEW"
    r"|(?:(?:LEFT|RIGHT|FULL|CROSS|NATURAL|SEMI|ANTI) )*JOIN) )"
)

_LINE = "\n\\1"


def written(case: Case, remark: str) -> str:
    """Return a case as text."""
    parts = ["\n".join(f"# {line}" for line in remark.splitlines())]
    parts += [_relation(relation) for relation in case.relations]
    for step in case.steps:
        match step:
            case View():
                whole = isinstance(step.query, Text)
                sql = step.sql if whole else _CLAUSES.sub(_LINE, step.sql)
                parts.append(f"\nVIEW {step.name}\n{sql}")
            case Restart():
                parts.append("\nRESTART")
            case Epoch():
                parts.append("\nEPOCH" + "".join(_tables(case, step)))
    return "\n".join(parts) + "\n"


def read(text: str) -> Case:
    """Return the case that a text describes."""
    relations: list[Relation] = []
    steps: list[Step] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line for line in block.splitlines() if not line.startswith("#")]
        relations += [_read_relation(m) for m in _RELATION.finditer("\n".join(lines))]
        word, _, rest = lines[0].partition(" ") if lines else ("", "", "")
        match word:
            case "VIEW":
                steps.append(View(rest, Text("\n".join(lines[1:]))))
            case "RESTART":
                steps.append(Restart())
            case "EPOCH":
                steps.append(_read_epoch({r.name: r for r in relations}, lines[1:]))
    return Case(tuple(relations), tuple(steps))


def _relation(relation: Relation) -> str:
    key = f", PRIMARY KEY ({', '.join(relation.key)})" if relation.key else ""
    kind = "STREAM" if relation.stream else "TABLE"
    return f"CREATE {kind} {relation.name} ({relation.columns_sql}{key})"


def _read_relation(match: re.Match[str]) -> Relation:
    kind, name, columns, key = match.groups()
    read = (column.split(" ", 1) for column in columns.split(", "))
    made = tuple(Column(column, Kind(kind_)) for column, kind_ in read)
    return Relation(name, kind == "STREAM", made, tuple(key.split(", ")) if key else ())


def _tables(case: Case, epoch: Epoch) -> Iterator[str]:
    for relation in case.relations:
        changes = epoch.changes.get(relation.name, ())
        if not changes:
            continue
        cells = [[relation.name, *(c.name for c in relation.columns)]]
        cells += [[f"{weight:+d}", *map(_cell, row)] for weight, row in changes]
        widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
        for line in cells:
            yield "\n" + " | ".join(f"{c:>{w}}" for c, w in zip(line, widths, strict=True))


def _read_epoch(relations: Mapping[str, Relation], lines: Iterable[str]) -> Epoch:
    changes: dict[str, list[Change]] = {}
    relation = None
    for line in lines:
        first, *cells = [cell.strip() for cell in line.split("|")]
        if first in relations:
            relation = relations[first]
            continue
        row = tuple(_value(c, k.kind) for c, k in zip(cells, relation.columns, strict=True))
        changes.setdefault(relation.name, []).append((int(first), row))
    return Epoch({name: tuple(found) for name, found in changes.items()})


def _cell(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case _:
            return str(value)


def _value(cell: str, kind: Kind) -> Any:
    if cell == "NULL":
        return None
    match kind:
        case Kind.INT | Kind.LONG:
            return int(cell)
        case Kind.DECIMAL:
            return Decimal(cell)
        case Kind.DOUBLE:
            return float(cell)
        case Kind.BOOL:
            return cell == "true"
        case Kind.DATE:
            return date.fromisoformat(cell)
        case Kind.OF_DAY:
            return time.fromisoformat(cell)
        case Kind.TIME:
            return datetime.fromisoformat(cell).replace(tzinfo=UTC)
        case _:
            return json.loads(cell)
