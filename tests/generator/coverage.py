"""Which constructs were tried, agreed, were refused: a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from generator.execution import Run, Verdict
from generator.syntax import (
    Derived,
    Expr,
    Grouping,
    Join,
    Node,
    Pivot,
    Select,
    SetOperation,
    Unpivot,
    Values,
    With,
    walk,
)

if TYPE_CHECKING:
    from generator.cases import Case


def constructs(query: Node) -> set[str]:
    """Return the names of what a query uses."""
    found: set[str] = set()
    for node in walk(query):
        match node:
            case Expr(tag=tag) if tag:
                found.add(f"  {tag}")
            case Join():
                natural = "NATURAL " if node.natural else ""
                found.add(f"{natural}{node.kind}")
                if node.using and not natural:
                    found.add("USING")
            case Grouping():
                found.add(node.form or ("GROUP BY" if node.keys else "aggregate of all"))
            case Select():
                found |= _clauses(node)
            case SetOperation():
                found.add(node.operator)
            case With():
                found.add("WITH RECURSIVE" if node.recursive else "WITH, read twice")
            case Pivot():
                found.add("PIVOT")
            case Unpivot():
                found.add("UNPIVOT")
            case Values():
                found.add("VALUES")
            case Derived():
                found.add("query in FROM")
            case _:
                pass
    return found


def _clauses(query: Select) -> set[str]:
    present = {
        "WHERE": query.where,
        "HAVING": query.having,
        "QUALIFY": query.qualify,
        "DISTINCT": query.distinct,
        "ORDER BY ... LIMIT": query.limit,
        "ORDER BY columns that are not selected": query.limit is not None and query.limit.whole,
        "|>": query.is_pipe,
    }
    return {name for name, clause in present.items() if clause}


@dataclass(slots=True)
class Coverage:
    """Adds up outcomes, by construct and by reason."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    reasons: dict[Verdict, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    by_construct: dict[str, Counter[Verdict]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, case: Case, run: Run) -> None:
        """Count the views of a case."""
        names = {view.name for view in case.views}
        for view in case.views:
            outcome = run.outcomes.get(view.name)
            if outcome is None:
                continue
            self.verdicts[outcome.verdict] += 1
            if outcome.verdict in (Verdict.REFUSED, Verdict.BATCH_ERROR):
                self.reasons[outcome.verdict][outcome.reason] += 1
            used = constructs(view.query)
            if names & set(view.sql.split()):
                used.add("view over a view")
            for name in used:
                self.by_construct[name][outcome.verdict] += 1

    def __add__(self, other: Coverage) -> Coverage:
        both = Coverage(self.verdicts + other.verdicts)
        for one in (self, other):
            for verdict, reasons in one.reasons.items():
                both.reasons[verdict] += reasons
            for name, counts in one.by_construct.items():
                both.by_construct[name] += counts
        return both

    @property
    def views(self) -> int:
        """How many views were tried."""
        return self.verdicts.total()

    def line(self) -> str:
        """Return the totals in one line."""
        return ", ".join(f"{self.verdicts[v]:,} {v}" for v in Verdict)

    def table(self) -> str:
        """Return all there is to know."""
        lines = [f"{'construct':<34}" + "".join(f"{v:>13}" for v in Verdict)]
        for name, counts in sorted(self.by_construct.items(), key=lambda p: (p[0][0] == " ", p)):
            lines.append(f"{name:<34}" + "".join(f"{counts[v] or '':>13}" for v in Verdict))
        for verdict, reasons in self.reasons.items():
            lines += ["", f"{verdict}:"]
            lines += [f"{n:>6}  {reason}" for reason, n in reasons.most_common()]
        return "\n".join([*lines, "", self.line()])
