"""TPC-DS's data, and how it changes: baskets come and go, some comes back, the rest is revised."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from suites.changes import Changes
from suites.tpcds.population import ADDRESSES, CATEGORIES, COLORS, Fields, dimensions
from suites.tpcds.trade import RETURNS, SALES, Trade

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Oracle

_MOST_CHANGES = 8
"""As many as a basket that goes with all that came back of it, or fewer."""

_NUMBER = {
    "store": ("ss_ticket_number", "sr_ticket_number"),
    "catalog": ("cs_order_number", "cr_order_number"),
    "web": ("ws_order_number", "wr_order_number"),
}


class Evolution(Changes):
    """All 24 tables: a load and then changes."""

    def __init__(self, run: Oracle, seed: int) -> None:
        super().__init__(run, seed)
        self._dimensions = dimensions(self.random)
        self._trade = Trade(self.random, self._dimensions["customer"])
        self._sold: dict[str, list[Fields]] = {channel: [] for channel in SALES}

    def load(self, baskets: int) -> None:
        """Fill the tables, with so many baskets of each channel."""
        for name, rows in self._dimensions.items():
            self._put_all(name, rows)
        self._put_all("inventory", self._trade.stock())
        for channel in SALES:
            self._sold[channel].clear()
            for _ in range(baskets):
                self._sell(channel)
            for line in list(self._sold[channel]):
                if self.random.random() < 0.35:
                    self._bring_back(channel, line)
        self.write()

    def change(self, count: int) -> None:
        """Make so many changes, in one epoch."""
        left = count
        while left:
            draw, channel = self.random.random(), self.random.choice(list(SALES))
            if draw < 0.25 and left > _MOST_CHANGES:
                left -= self._sell(channel)
            elif draw < 0.4 and left > _MOST_CHANGES:
                left -= self._drop_oldest(channel)
            elif draw < 0.5 and self._sold[channel]:
                self._bring_back(channel, self.random.choice(self._sold[channel]))
                left -= 1
            else:
                left -= min(1, self.revise(*self.random.choice(self._revisions())))
        self.write()

    # -- changes ---------------------------------------------------------------------------

    def _sell(self, channel: str) -> int:
        lines = self._trade.basket(channel)
        self._put_all(SALES[channel], lines)
        self._sold[channel] += lines
        return len(lines)

    def _bring_back(self, channel: str, line: Fields) -> None:
        self._put_all(RETURNS[channel], [self._trade.returned(channel, line)])

    def _drop_oldest(self, channel: str) -> int:
        """Delete the oldest basket, and what came back of it."""
        if not self._sold[channel]:
            return 0
        sale, back = _NUMBER[channel]
        number = self._sold[channel][0][sale]
        self._sold[channel] = [line for line in self._sold[channel] if line[sale] != number]
        gone = 0
        for name, column in ((SALES[channel], sale), (RETURNS[channel], back)):
            at = self.position(name, column)
            for row in [row for row in self.live[name].values() if row[at] == number]:
                self.drop(name, row)
                gone += 1
        return gone

    def _revisions(self) -> list[tuple[str, dict[str, Callable[[Any], Any]]]]:
        random = self.random
        return [
            ("item", {"i_current_price": self._price}),
            ("item", {"i_category": lambda _: random.choice(CATEGORIES)}),
            ("item", {"i_color": lambda _: random.choice(COLORS)}),
            ("item", {"i_manager_id": lambda _: random.randrange(1, 5)}),
            ("customer", {"c_current_addr_sk": lambda _: random.randrange(1, ADDRESSES + 1)}),
            ("customer", {"c_preferred_cust_flag": lambda _: random.choice("YN")}),
            ("promotion", {"p_channel_email": lambda _: random.choice("YN")}),
            ("store", {"s_number_employees": lambda _: random.randrange(190, 300)}),
            ("inventory", {"inv_quantity_on_hand": lambda _: self._trade.quantity_on_hand()}),
            ("store_sales", {"ss_sales_price": self._price, "ss_ext_sales_price": self._price}),
            ("catalog_sales", {"cs_ext_discount_amt": self._price}),
            ("web_sales", {"ws_net_paid": self._price}),
        ]

    def _price(self, old: Decimal) -> Decimal:
        return (old * self.random.randrange(70, 131) / 100).quantize(Decimal("0.01"))

    def _put_all(self, name: str, rows: list[Fields]) -> None:
        columns = self.run.models[name].names
        for row in rows:
            assert set(row) <= set(columns), (name, set(row) - set(columns))
            self.put(name, tuple(row.get(column) for column in columns))
