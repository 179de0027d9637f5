"""TPC-DS's facts: tickets and orders of a few lines, returns of some lines, and stock.

A customer often buys an item again in another channel, on the same day or later: the queries that
follow somebody from channel to channel would find nobody otherwise.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

from suites.tpcds import population as p
from suites.tpcds.population import FIRST_DAY, FIRST_DAY_SK, Fields, cents, known

if TYPE_CHECKING:
    from random import Random

SALES = {"store": "store_sales", "catalog": "catalog_sales", "web": "web_sales"}
RETURNS = {"store": "store_returns", "catalog": "catalog_returns", "web": "web_returns"}
_PREFIX = {"store": "ss", "catalog": "cs", "web": "ws"}

_YEARS = {1998: 3, 1999: 14, 2000: 52, 2001: 28, 2002: 3}
_MONTHS = (2, 2, 1.5, 1, 1, 1, 1, 1.2, 1, 1, 3, 2.5)
_REMEMBERED = 200


class Trade:
    """Makes baskets and returns; each basket and each return is new."""

    def __init__(self, random: Random, customers: list[Fields]) -> None:
        self.random = random
        self._customers = customers
        self._numbers = dict.fromkeys(SALES, 0)
        self._lines: list[tuple[int, int, int]] = []

    def basket(self, channel: str) -> list[Fields]:
        """Return the lines of a ticket or an order."""
        self._numbers[channel] += 1
        day, customer, wanted = self._occasion(channel)
        items = [wanted] if wanted else []
        more = self.random.choice((1, 2, 2, 3, 3, 4)) - len(items)
        items += [self._item() for _ in range(more)]
        shared = self._order(channel, day, customer)
        lines = []
        for item in dict.fromkeys(items):
            self._remember(day, customer["c_customer_sk"], item)
            lines.append(shared | self._line(channel, item))
        return lines

    def returned(self, channel: str, sale: Fields) -> Fields:
        """Return the return of a line that was sold."""
        prefix, quantity = _PREFIX[channel], sale[f"{_PREFIX[channel]}_quantity"]
        part = self.random.randrange(1, quantity + 1)
        amount = sale[f"{prefix}_sales_price"] * part
        cash = cents(float(amount) * self.random.choice((0.0, 0.3, 0.6)))
        day = (sale[f"{prefix}_sold_date_sk"] or FIRST_DAY_SK) + self.random.randrange(1, 140)
        own = {
            "returned_date_sk": min(day, FIRST_DAY_SK + p.DAYS - 1),
            "return_time_sk" if channel == "store" else "returned_time_sk": self._time(),
            "item_sk": sale[f"{prefix}_item_sk"],
            "reason_sk": known(self.random, p.REASONS),
            "return_quantity": part,
            "return_amount" if channel == "catalog" else "return_amt": amount,
            "return_tax": cents(float(amount) * 0.05),
            "return_amt_inc_tax": amount + cents(float(amount) * 0.05),
            "fee": cents(self.random.random() * 50),
            "return_ship_cost": cents(self.random.random() * 90),
            "refunded_cash": cash,
            "reversed_charge": cents(float(amount - cash) * 0.2),
            "account_credit" if channel == "web" else "store_credit": cents(
                float(amount - cash) * 0.1
            ),
            "net_loss": cents(float(amount) * 0.3 + 20),
        }
        mine = {"store": "sr", "catalog": "cr", "web": "wr"}[channel]
        return {f"{mine}_{name}": value for name, value in (own | self._who(channel, sale)).items()}

    def stock(self) -> list[Fields]:
        """Return what is in the warehouses every other week of half a year."""
        begin = FIRST_DAY_SK + (date(2000, 1, 3) - FIRST_DAY).days
        return [
            {
                "inv_date_sk": begin + 14 * week,
                "inv_item_sk": item,
                "inv_warehouse_sk": item % p.WAREHOUSES + 1,
                "inv_quantity_on_hand": self.quantity_on_hand(),
            }
            for week in range(14)
            for item in range(1, p.ITEMS, 2)
        ]

    def quantity_on_hand(self) -> int | None:
        """Return how much there is of something."""
        return None if self.random.random() < 0.03 else self.random.randrange(20, 900)

    # -- who, when, what -------------------------------------------------------------------

    def _occasion(self, channel: str) -> tuple[int, Fields, int | None]:
        if channel != "store" and self._lines and self.random.random() < 0.5:
            day, customer, item = self.random.choice(self._lines)
            if self.random.random() < 0.5:
                day = min(day + self.random.randrange(5, 200), FIRST_DAY_SK + p.DAYS - 1)
            return day, self._customers[customer - 1], item
        return self._day(), self._customer(), None

    def _remember(self, day: int, customer: int, item: int) -> None:
        self._lines.append((day, customer, item))
        if len(self._lines) > _REMEMBERED:
            self._lines.pop(self.random.randrange(_REMEMBERED))

    def _day(self) -> int:
        year = self.random.choices(list(_YEARS), list(_YEARS.values()))[0]
        month = self.random.choices(range(1, 13), _MONTHS)[0]
        day = date(year, month, 1) + timedelta(days=self.random.randrange(28))
        return FIRST_DAY_SK + (day - FIRST_DAY).days

    def _customer(self) -> Fields:
        """Return a customer; the first are the most faithful."""
        return self._customers[int(len(self._customers) * self.random.random() ** 1.6)]

    def _item(self) -> int:
        return int(p.ITEMS * self.random.random() ** 1.3) + 1

    def _time(self) -> int:
        hour = self.random.choice((*range(6, 22), 8, 9, 19, 20, 20))
        return hour * 3600 + 900 * self.random.randrange(4)

    def _order(self, channel: str, day: int, customer: Fields) -> Fields:
        """Return what the lines of a basket have in common."""
        prefix, number = _PREFIX[channel], self._numbers[channel]
        sold = {
            f"{prefix}_sold_date_sk": self._or_null(day),
            f"{prefix}_sold_time_sk": self._time(),
        }
        if channel == "store":
            return {
                **sold,
                "ss_ticket_number": number,
                "ss_store_sk": known(self.random, p.STORES),
                **self._party("ss", customer),
            }
        shipped = min(day + self.random.randrange(1, 130), FIRST_DAY_SK + p.DAYS - 1)
        recipient = customer if self.random.random() < 0.8 else self._customer()
        place = {
            "cs_call_center_sk": known(self.random, p.CENTERS),
            "cs_catalog_page_sk": known(self.random, p.PAGES),
            "ws_web_page_sk": known(self.random, p.WEB_PAGES),
            "ws_web_site_sk": known(self.random, p.SITES),
        }
        return {
            **sold,
            f"{prefix}_order_number": number,
            f"{prefix}_ship_date_sk": self._or_null(shipped),
            f"{prefix}_ship_mode_sk": known(self.random, p.SHIPPINGS),
            **{name: value for name, value in place.items() if name.startswith(prefix)},
            **self._party(f"{prefix}_bill", customer),
            **self._party(f"{prefix}_ship", recipient),
        }

    def _party(self, prefix: str, customer: Fields) -> Fields:
        elsewhere = self.random.random() < 0.3
        people = customer["c_current_cdemo_sk"] if self.random.random() < 0.6 else None
        return {
            f"{prefix}_customer_sk": self._or_null(customer["c_customer_sk"]),
            f"{prefix}_cdemo_sk": people or known(self.random, p.PEOPLE),
            f"{prefix}_hdemo_sk": known(self.random, p.HOUSEHOLDS),
            f"{prefix}_addr_sk": known(self.random, p.ADDRESSES)
            if elsewhere
            else customer["c_current_addr_sk"],
        }

    def _who(self, channel: str, sale: Fields) -> Fields:
        """Return who brings a line back, and where: mostly who bought it."""
        if channel == "store":
            same = ("ticket_number", "customer_sk", "cdemo_sk", "hdemo_sk", "addr_sk", "store_sk")
            return {name: sale[f"ss_{name}"] for name in same}
        prefix = _PREFIX[channel]
        who: Fields = {"order_number": sale[f"{prefix}_order_number"]}
        for name in ("customer_sk", "cdemo_sk", "hdemo_sk", "addr_sk"):
            who[f"refunded_{name}"] = sale[f"{prefix}_bill_{name}"]
            giver = "bill" if self.random.random() < 0.7 else "ship"
            who[f"returning_{name}"] = sale[f"{prefix}_{giver}_{name}"]
        if channel == "web":
            return who | {"web_page_sk": sale["ws_web_page_sk"]}
        same = ("call_center_sk", "catalog_page_sk", "ship_mode_sk", "warehouse_sk")
        return who | {name: sale[f"cs_{name}"] for name in same}

    def _line(self, channel: str, item: int) -> Fields:
        quantity = self.random.randrange(1, 101)
        cost = round(1 + self.random.random() * 80, 2)
        asked = round(cost * (1 + self.random.random() * 1.2), 2)
        price = round(asked * (0.4 + 0.6 * self.random.random()), 2)
        coupon = price * quantity * self.random.choice((0, 0, 0, 0.2, 0.5))
        paid, shipping = price * quantity - coupon, self.random.random() * 100
        line = {
            "item_sk": item,
            "promo_sk": known(self.random, p.PROMOTIONS),
            "quantity": quantity,
            "wholesale_cost": cents(cost),
            "list_price": cents(asked),
            "sales_price": cents(price),
            "ext_discount_amt": cents((asked - price) * quantity),
            "ext_sales_price": cents(price * quantity),
            "ext_wholesale_cost": cents(cost * quantity),
            "ext_list_price": cents(asked * quantity),
            "ext_tax": cents(paid * 0.06),
            "coupon_amt": cents(coupon),
            "net_paid": cents(paid),
            "net_paid_inc_tax": cents(paid * 1.06),
            "net_profit": cents(paid - cost * quantity),
        }
        if channel != "store":
            line |= {
                "warehouse_sk": known(self.random, p.WAREHOUSES),
                "ext_ship_cost": cents(shipping),
                "net_paid_inc_ship": cents(paid + shipping),
                "net_paid_inc_ship_tax": cents(paid * 1.06 + shipping),
            }
        return {f"{_PREFIX[channel]}_{name}": value for name, value in line.items()}

    def _or_null(self, value: int) -> int | None:
        return None if self.random.random() < 0.04 else value
