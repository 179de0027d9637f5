"""TPC-H's data at a small scale, and how it changes: orders come and go, the rest is revised."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections import defaultdict, deque
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suites.changes import Changes

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from bags import Row
    from harness import Oracle

TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD")
_TYPES = ("PROMO BURNISHED STEEL", "ECONOMY ANODIZED STEEL", "SMALL PLATED BRASS", "LARGE TIN")
_LINES = 7
"""The most lines that an order has."""


def generated(directory: Path, scale: float) -> dict[str, list[Row]]:
    """Return the rows of all tables as TPC-H's generator makes them."""
    tables = generated_tables(directory, scale)
    return {n: list(zip(*t.to_pydict().values(), strict=True)) for n, t in tables.items()}


def generated_tables(directory: Path, scale: float) -> dict[str, pa.Table]:
    """Return all tables as TPC-H's generator makes them; orders and their lines are sorted.

    They are read again if they were generated into the directory before.
    """
    files = {name: directory / f"{name}.parquet" for name in TABLES}
    if not all(file.exists() for file in files.values()):
        _generate(directory, scale)
    return {name: _with_strings(pq.read_table(file)) for name, file in files.items()}


def _generate(directory: Path, scale: float) -> None:
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    found = str(program) if program.exists() else shutil.which("tpchgen-cli")
    if found is None:
        pytest.skip("the package tpchgen-cli is not installed")
    command = [found, "parquet", "-s", str(scale), "-o", str(directory), "--quiet"]
    subprocess.run(command, check=True)


def _with_strings(table: pa.Table) -> pa.Table:
    """Return a table whose texts, views as they are generated, are of Arrow's usual type."""
    types = [pa.string() if t == pa.string_view() else t for t in table.schema.types]
    return table.cast(pa.schema(list(zip(table.schema.names, types, strict=True))))


def revisions(random: Random) -> list[tuple[str, dict[str, Callable[[Any], Any]]]]:
    """Return what revises a row: a table, and functions of the former values of its columns."""

    def price(old: Decimal) -> Decimal:
        return (old * random.randrange(80, 121) / 100).quantize(Decimal("0.01"))

    def later(old: date) -> date:
        return old + timedelta(days=random.randrange(40))

    return [
        ("partsupp", {"ps_supplycost": price}),
        ("partsupp", {"ps_availqty": lambda _: random.randrange(1, 10_000)}),
        ("lineitem", {"l_quantity": lambda _: Decimal(random.randrange(1, 51))}),
        ("lineitem", {"l_extendedprice": price}),
        ("lineitem", {"l_receiptdate": later, "l_shipdate": later}),
        ("customer", {"c_mktsegment": lambda _: random.choice(_SEGMENTS)}),
        ("customer", {"c_acctbal": price}),
        ("part", {"p_type": lambda _: random.choice(_TYPES)}),
        ("supplier", {"s_acctbal": price}),
        ("orders", {"o_totalprice": price}),
    ]


class Evolution(Changes):
    """The orders that are there, those still to come, and changes to them and the rest.

    ``orders`` of the generated orders are there at first, taken evenly from all dates; those that
    are deleted come back in the end.
    """

    def __init__(
        self, run: Oracle, tables: dict[str, list[Row]], *, orders: int, seed: int
    ) -> None:
        super().__init__(run, seed)
        self._lines: dict[Any, list[Row]] = defaultdict(list)
        for line in tables["lineitem"]:
            self._lines[line[0]].append(line)
        shuffled = self.random.sample(tables["orders"], len(tables["orders"]))
        self._coming = deque(shuffled[orders:])
        self._others = {name: tables[name] for name in TABLES[:6]}
        self._orders = shuffled[:orders]
        self._revisions = revisions(self.random)

    def load(self, orders: slice = slice(None)) -> None:
        """Insert some of the orders that are there at first, and all that they refer to."""
        for name, rows in self._others.items():
            for row in rows if not self.live[name] else ():
                self.put(name, row)
        for order in self._orders[orders]:
            self._put_order(order)
        self.write()

    def change(self, count: int) -> None:
        """Make so many changes, in one epoch."""
        left = count
        while left:
            draw = self.random.random()
            if draw < 0.15 and left > _LINES and self._coming:
                left -= self._put_order(self._coming.popleft())
            elif draw < 0.3 and left > _LINES and self.live["orders"]:
                left -= self._drop_oldest_order()
            else:
                left -= self._revise()
        self.write()

    def _put_order(self, order: Row) -> int:
        self.put("orders", order)
        for line in self._lines[order[0]]:
            self.put("lineitem", line)
        return 1 + len(self._lines[order[0]])

    def _drop_oldest_order(self) -> int:
        date = self.position("orders", "o_orderdate")
        order = min(self.live["orders"].values(), key=lambda row: (row[date], row[0]))
        lines = [row for row in self.live["lineitem"].values() if row[0] == order[0]]
        for line in lines:
            self.drop("lineitem", line)
        self.drop("orders", order)
        self._coming.append(order)
        return 1 + len(lines)

    def _revise(self) -> int:
        return min(1, self.revise(*self.random.choice(self._revisions)))
