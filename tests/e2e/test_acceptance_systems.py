"""Systems as their users would build them, held at each step to plain computation in Python.

Rows come late, change and go, and the clock is the test's. After every step each view equals what
Python computes from the rows that are there, and so does the sum of its changelog.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from length import choose, thorough

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.spark

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
SECOND, MINUTE, HOUR, DAY = (timedelta(**{u: 1}) for u in ("seconds", "minutes", "hours", "days"))


@dataclass
class System:
    """A database with a clock, the rows of its tables by key, and the views that must follow."""

    connect: Callable[[Callable[[], int]], headrace.Database]
    time: datetime = START
    tables: dict[str, dict[int, tuple]] = field(default_factory=dict)
    views: dict[str, Callable[[], Counter]] = field(default_factory=dict)
    followed: dict[str, Any] = field(default_factory=dict)
    changelogs: dict[str, Counter] = field(default_factory=dict)
    told: list[tuple] = field(default_factory=list)

    def open(self) -> None:
        """Open the database, and follow its views."""
        self.db = self.connect(lambda: (self.time - EPOCH) // MICRO)
        for name in self.views:
            self.follow(name)

    def table(self, statement: str) -> None:
        self.db.sql(statement)
        self.tables[statement.split()[2]] = {}

    def view(self, statement: str, expected: Callable[[], Counter]) -> None:
        """Create a view; ``expected`` computes its rows."""
        self.db.sql(statement)
        name = statement.split()[3]
        self.views[name] = expected
        self.follow(name)

    def follow(self, name: str) -> None:
        self.followed[name] = self.db.subscribe(name)
        self.changelogs[name] = Counter()

    def put(self, table: str, *rows: tuple) -> None:
        """Insert rows, or replace those of the same key."""
        self.db.insert(table, list(rows))
        self.tables[table].update({row[0]: row for row in rows})

    def delete(self, table: str, *keys: int) -> None:
        key = self.db.parts.reader.catalog.resolve(table).primary_key[0]
        self.db.sql(f"DELETE FROM {table} WHERE {key} IN ({', '.join(map(str, keys))})")
        for each in keys:
            self.tables[table].pop(each, None)

    def step(self, passes: timedelta = timedelta(0)) -> list[tuple]:
        """Let time pass, check every view, and return what its followers were told."""
        self.time += passes
        while self.db.parts.loop.advance() is not None:
            pass
        self.told = []
        for name, expected in self.views.items():
            rows = Counter(self.db.sql(f"SELECT * FROM {name}").fetchall())
            assert rows == expected(), (name, self.time)
            for change in self.followed[name].poll() or ():
                row = tuple(change.row.values())
                self.changelogs[name][row] += change.weight
                self.told.append((name, change.operation, *row))
            assert +self.changelogs[name] == rows, ("the changelog of", name)
            assert min(self.changelogs[name].values(), default=0) >= 0
        return self.told

    def finish(self) -> None:
        """Verify by all history, compact, restart, and check again."""
        for _, _, differences, verdict in self.db.sql("VERIFY").fetchall():
            assert (differences, verdict) == (0, "equal to batch")
        self.db.compact()
        self.db.close()
        self.open()
        self.step()


@pytest.fixture
def system(tmp_path, spark) -> Iterator[System]:
    def connect(clock: Callable[[], int]) -> headrace.Database:
        return headrace.connect(
            tmp_path / "db", spark=spark, clock=clock, continuous=False, partitions=2
        )

    made = System(connect)
    made.open()
    yield made
    made.db.close()


def first(groups, most=10):
    """The first rows of each group, by views from the top and then by title."""
    return Counter(
        row
        for rows in groups.values()
        for row in sorted(rows, key=lambda r: (-r[-1], r[-2]))[:most]
    )


# -- trending titles -----------------------------------------------------------------------------

VIEWING_EVENTS = """CREATE TABLE viewing_events (event_id BIGINT, user_id STRING, country STRING, title_id STRING,
    watched_seconds INT, event_time TIMESTAMP(3), PRIMARY KEY (event_id) NOT ENFORCED)
    WITH ('connector' = 'kafka', 'topic' = 'viewing_events', 'format' = 'json')"""
TRENDING = """CREATE MATERIALIZED VIEW trending AS
    SELECT title_id, COUNT(*) AS views FROM viewing_events
    WHERE event_time > now() - INTERVAL '5' MINUTE AND event_time <= now()
    GROUP BY title_id ORDER BY views DESC, title_id LIMIT 10"""
TRENDING_BY_COUNTRY = """CREATE MATERIALIZED VIEW trending_by_country AS
    SELECT country, title_id, views FROM (
        SELECT country, title_id, COUNT(*) AS views,
            ROW_NUMBER() OVER (PARTITION BY country ORDER BY COUNT(*) DESC, title_id) AS place
        FROM viewing_events
        WHERE event_time > now() - INTERVAL '5' MINUTE AND event_time <= now()
        GROUP BY country, title_id)
    WHERE place <= 10"""
TRENDING_EACH_MINUTE = """CREATE MATERIALIZED VIEW trending_each_minute AS
    SELECT window_end, title_id, COUNT(*) AS views
    FROM TABLE(HOP(TABLE viewing_events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))
    WHERE window_end <= now() AND window_end > now() - INTERVAL '1' MINUTE
    GROUP BY window_end, title_id
    QUALIFY ROW_NUMBER() OVER (ORDER BY views DESC, title_id) <= 10"""
ENGAGEMENT = """CREATE MATERIALIZED VIEW engagement AS
    SELECT title_id, COUNT(DISTINCT user_id) AS viewers, SUM(watched_seconds) AS seconds,
        CAST(SUM(watched_seconds) / COUNT(DISTINCT user_id) AS DECIMAL(12,2)) AS seconds_per_viewer
    FROM viewing_events WHERE event_time > now() - INTERVAL '7' DAY AND event_time <= now()
    GROUP BY title_id"""


def within(system, length):
    events = system.tables["viewing_events"].values()
    return [e for e in events if e[5] is not None and system.time - length < e[5] <= system.time]


def trending(system):
    views = Counter(title for _, _, _, title, _, _ in within(system, 5 * MINUTE))
    return first({None: list(views.items())})


def trending_by_country(system):
    views = Counter((country, title) for _, _, country, title, _, _ in within(system, 5 * MINUTE))
    countries = defaultdict(list)
    for (country, title), n in views.items():
        countries[country].append((country, title, n))
    return first(countries)


def trending_each_minute(system):
    end = system.time.replace(second=0, microsecond=0)
    views = Counter(
        e[3]
        for e in system.tables["viewing_events"].values()
        if e[5] is not None and end - 5 * MINUTE <= e[5] < end
    )
    return first({None: [(end, title, n) for title, n in views.items()]})


def engagement(system):
    viewers, seconds = defaultdict(set), Counter()
    for _, user, _, title, watched, _ in within(system, 7 * DAY):
        viewers[title].add(user)
        seconds[title] += watched
    cent = Decimal("0.01")
    return Counter(
        (t, len(v), seconds[t], (Decimal(seconds[t]) / len(v)).quantize(cent, "ROUND_HALF_UP"))
        for t, v in viewers.items()
    )


@pytest.mark.long
def test_trending_titles_drop_out_as_the_clock_passes(system):
    random = Random(5)
    system.table(VIEWING_EVENTS)
    system.view(TRENDING, lambda: trending(system))
    system.view(TRENDING_BY_COUNTRY, lambda: trending_by_country(system))
    system.view(TRENDING_EACH_MINUTE, lambda: trending_each_minute(system))
    system.view(ENGAGEMENT, lambda: engagement(system))

    def event(id_, ago, title=None):
        title = title or f"title-{random.choice([0, 0, 0, *range(16)]):02}"
        country = random.choice(["NO", "NO", "DE", "US"])
        user, watched = f"u-{random.randrange(9)}", random.randrange(10, 4000)
        return id_, user, country, title, watched, None if ago is None else system.time - ago

    system.put("viewing_events", *(event(i, i * 11 * SECOND) for i in range(40)))
    system.step()
    assert len(system.tables["viewing_events"]) > len(within(system, 5 * MINUTE)) > 20
    system.put("viewing_events", event(100, timedelta(0), "once"))
    told = system.step(SECOND)
    assert {row[:3] for row in told if "once" in row} >= {("engagement", "+I", "once")}
    # Nothing arrives: titles lose views, and leave, minute by minute.
    gone = set()
    for _ in range(6):
        gone |= {row[:2] for row in system.step(MINUTE) if row[1] in {"-D", "-U"}}
    assert gone >= {("trending", "-D"), ("trending_by_country", "-D"), ("trending", "-U")}
    assert not trending(system)
    # Late, ahead of the clock, without a time, and corrected.
    system.put(
        "viewing_events", *(event(200 + i, i * 17 * SECOND - 90 * SECOND) for i in range(30))
    )
    system.put("viewing_events", event(300, None), event(301, 6 * DAY), event(302, 8 * DAY, "old"))
    system.step()
    system.put("viewing_events", *(event(200 + i, (i % 7) * MINUTE) for i in range(0, 30, 4)))
    system.step(20 * SECOND)
    system.delete("viewing_events", 3, 201, 202, 203, 301)
    system.step(40 * SECOND)
    if thorough():
        system.finish()
    for passes in choose(
        (5 * MINUTE, 7 * DAY - HOUR), (90 * SECOND, 5 * MINUTE, DAY, 6 * DAY - HOUR)
    ):
        system.step(passes)
    assert engagement(system)
    told = system.step(2 * HOUR)
    assert not engagement(system)
    assert {row[1] for row in told if row[0] == "engagement"} == {"-D"}
    system.finish()


# -- daily active users, revenue per product -----------------------------------------------------

ORDERS = """CREATE TABLE orders (order_id BIGINT, user_id STRING, product_id STRING, quantity INT,
    price DECIMAL(10,2), order_time TIMESTAMP, PRIMARY KEY (order_id))"""
DAILY_ACTIVE_USERS = """CREATE MATERIALIZED VIEW daily_active_users AS
    SELECT CAST(order_time AS DATE) AS day, COUNT(DISTINCT user_id) AS active_users, COUNT(*) AS events
    FROM orders GROUP BY CAST(order_time AS DATE)"""
REVENUE = """CREATE MATERIALIZED VIEW revenue_per_product AS
    SELECT product_id, SUM(quantity * price) AS revenue, COUNT(DISTINCT user_id) AS buyers
    FROM orders GROUP BY product_id"""
STICKINESS = """CREATE MATERIALIZED VIEW stickiness AS
    SELECT d.month, MAX(d.users) AS best_day, m.users AS month_users FROM (
        SELECT DATE_TRUNC('month', order_time) AS month, CAST(order_time AS DATE) AS day,
            COUNT(DISTINCT user_id) AS users FROM orders GROUP BY 1, 2) d
    JOIN (SELECT DATE_TRUNC('month', order_time) AS month, COUNT(DISTINCT user_id) AS users
        FROM orders GROUP BY 1) m ON m.month = d.month
    GROUP BY d.month, m.users"""


def daily_active_users(orders):
    days = defaultdict(list)
    for _, user, _, _, _, at in orders.values():
        days[at.date()].append(user)
    return Counter((day, len({*users} - {None}), len(users)) for day, users in days.items())


def revenue_per_product(orders):
    revenue, buyers = {}, defaultdict(set)
    for _, user, product, quantity, price, _ in orders.values():
        buyers[product].add(user)
        known = None not in (quantity, price)
        total = revenue.setdefault(product, None)
        revenue[product] = (total or 0) + quantity * price if known else total
    return Counter((p, total, len(buyers[p] - {None})) for p, total in revenue.items())


def stickiness(orders):
    days, months = defaultdict(set), defaultdict(set)
    for _, user, _, _, _, at in orders.values():
        month = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        days[month, at.date()].add(user)
        months[month].add(user)
    best = defaultdict(int)
    for (month, _), users in days.items():
        best[month] = max(best[month], len(users - {None}))
    return Counter((m, best[m], len(users - {None})) for m, users in months.items())


@pytest.mark.long
def test_daily_active_users_and_revenue_per_product(system):
    random = Random(8)
    system.table(ORDERS)
    orders = system.tables["orders"]
    system.view(DAILY_ACTIVE_USERS, lambda: daily_active_users(orders))
    system.view(REVENUE, lambda: revenue_per_product(orders))
    system.view(STICKINESS, lambda: stickiness(orders))

    def order(id_):
        user = random.choice(["ann", "bob", "cid", "dee", None])
        price = None if random.random() < 0.1 else Decimal(random.randrange(1, 9999)) / 100
        at = START - random.randrange(40 * 24) * HOUR
        return id_, user, f"p{random.randrange(4)}", random.randrange(1, 5), price, at

    past = {}
    for round_ in range(choose(2, 5)):
        system.put("orders", *(order(random.randrange(60)) for _ in range(12)))
        system.step()
        some = random.sample(sorted(orders), 5)
        system.delete("orders", *some)
        system.step()
        epoch = system.db.flush()
        past[epoch] = daily_active_users(orders), revenue_per_product(orders)
        if round_ == 3:
            system.finish()
    for epoch, (active, revenue) in past.items():
        for name, then in (("daily_active_users", active), ("revenue_per_product", revenue)):
            found = system.db.sql(f"SELECT * FROM {name} AS OF EPOCH {epoch}").fetchall()
            assert Counter(found) == then, (name, epoch)
    system.delete("orders", *orders)
    told = system.step()
    assert told
    assert {operation for _, operation, *_ in told} == {"-D"}
    system.finish()


# -- a feature table -----------------------------------------------------------------------------

PURCHASES = """CREATE TABLE purchases (id BIGINT, user_id STRING, amount DECIMAL(10,2), at TIMESTAMP, PRIMARY KEY (id))"""
LABELS = """CREATE TABLE labels (id BIGINT, user_id STRING, churned BOOLEAN, at TIMESTAMP, PRIMARY KEY (id))"""
FEATURES = """CREATE MATERIALIZED VIEW user_features AS
    WITH steps AS (
        SELECT user_id, at AS valid_from, 1 AS purchases, amount FROM purchases
        UNION ALL
        SELECT user_id, at + INTERVAL '7' DAY, -1, -amount FROM purchases)
    SELECT user_id, valid_from, SUM(SUM(purchases)) OVER upto AS purchases_7d, SUM(SUM(amount)) OVER upto AS spend_7d
    FROM steps WHERE valid_from IS NOT NULL GROUP BY user_id, valid_from
    WINDOW upto AS (PARTITION BY user_id ORDER BY valid_from)"""
TRAINING_AS_OF = """CREATE MATERIALIZED VIEW training AS
    SELECT l.id, l.churned, COALESCE(f.purchases_7d, 0) AS purchases_7d, COALESCE(f.spend_7d, 0) AS spend_7d
    FROM labels l LEFT ASOF JOIN user_features f MATCH_CONDITION (l.at >= f.valid_from) ON f.user_id = l.user_id"""
TRAINING_BY_INTERVAL = """CREATE MATERIALIZED VIEW training_by_interval AS
    SELECT l.id, l.churned, COUNT(p.id) AS purchases_7d, COALESCE(SUM(p.amount), 0) AS spend_7d
    FROM labels l LEFT JOIN purchases p
        ON p.user_id = l.user_id AND p.at <= l.at AND p.at > l.at - INTERVAL '7' DAY
    GROUP BY l.id, l.churned"""
AT_EACH_PURCHASE = """CREATE MATERIALIZED VIEW at_each_purchase AS
    SELECT id, COUNT(*) OVER last_days AS purchases_7d, SUM(amount) OVER last_days AS spend_7d FROM purchases
    WINDOW last_days AS (PARTITION BY user_id ORDER BY at RANGE BETWEEN INTERVAL '7' DAY PRECEDING AND CURRENT ROW)"""
ONLINE = """CREATE MATERIALIZED VIEW online_features AS
    SELECT user_id, COUNT(*) AS purchases_7d, SUM(amount) AS spend_7d FROM purchases
    WHERE at > now() - INTERVAL '7' DAY AND at <= now() GROUP BY user_id"""


def seen(purchases, user, at, oldest):
    """What a user had bought at a time, in the seven days before it."""
    amounts = [
        amount
        for _, who, amount, then in purchases.values()
        if who == user and oldest(then) and then <= at
    ]
    return len(amounts), sum(amounts, Decimal(0))


def training(system):
    purchases = system.tables["purchases"]
    return Counter(
        (id_, churned, *seen(purchases, user, at, lambda then, at=at: then > at - 7 * DAY))
        for id_, user, churned, at in system.tables["labels"].values()
    )


def at_each_purchase(system):
    purchases = system.tables["purchases"]
    return Counter(
        (id_, *seen(purchases, user, at, lambda then, at=at: then >= at - 7 * DAY))
        for id_, user, _, at in purchases.values()
    )


def online(system):
    purchases, now = system.tables["purchases"], system.time
    found = {
        user: seen(purchases, user, now, lambda then: then > now - 7 * DAY)
        for _, user, _, _ in purchases.values()
    }
    return Counter((user, *features) for user, features in found.items() if features[0])


def features(system):
    purchases = system.tables["purchases"]
    moments = {(p[1], at) for p in purchases.values() for at in (p[3], p[3] + 7 * DAY)}
    return Counter(
        (user, at, *seen(purchases, user, at, lambda then, at=at: then > at - 7 * DAY))
        for user, at in moments
    )


@pytest.mark.long
def test_features_are_those_of_the_time_of_each_training_row(system):
    random = Random(9)
    system.table(PURCHASES)
    system.table(LABELS)
    system.view(FEATURES, lambda: features(system))
    system.view(TRAINING_AS_OF, lambda: training(system))
    system.view(TRAINING_BY_INTERVAL, lambda: training(system))
    system.view(AT_EACH_PURCHASE, lambda: at_each_purchase(system))
    system.view(ONLINE, lambda: online(system))

    def purchase(id_):
        at = system.time - random.randrange(30 * 8) * 3 * HOUR
        return id_, random.choice(["u1", "u2", "u3"]), Decimal(random.randrange(1, 999)) / 100, at

    system.put("purchases", (1, "u1", Decimal(10), START), (2, "u1", Decimal(5), START + 3 * DAY))
    system.put(
        "labels",
        *((i, "u1", i % 2 == 0, START + at) for i, at in enumerate(
            [-MICRO, timedelta(0), 3 * DAY - MICRO, 3 * DAY, 7 * DAY - MICRO, 7 * DAY, 10 * DAY]
        )),
    )  # fmt: skip
    system.step()
    spends = [row[3] for row in sorted(training(system))]
    assert spends == [0, 10, 10, 15, 15, 5, 0]
    before = system.db.flush()
    # A purchase that comes late changes the training rows of its seven days, and no other.
    system.put("purchases", (3, "u1", Decimal(100), START - 5 * DAY))
    told = system.step()
    moved = {row[2] for row in told if row[0] == "training"}
    assert moved == {0, 1} == {row[2] for row in told if row[0] == "training_by_interval"}
    then = system.db.sql(f"SELECT id, spend_7d FROM training AS OF EPOCH {before}").fetchall()
    assert [spend for _, spend in sorted(then)] == spends
    for round_ in range(choose(1, 3)):
        system.put("purchases", *(purchase(random.randrange(4, 40)) for _ in range(10)))
        labels = [(10 + random.randrange(20), f"u{random.randrange(1, 5)}", True) for _ in range(6)]
        at = [system.time - random.randrange(100) * 3 * HOUR for _ in labels]
        system.put("labels", *((*label, when) for label, when in zip(labels, at, strict=True)))
        system.step()
        system.delete("purchases", *random.sample(sorted(system.tables["purchases"]), 3))
        system.delete("labels", random.choice(sorted(system.tables["labels"])))
        system.step(DAY)
        if round_ == 1:
            system.finish()
    # As of any event time, from the table itself.
    for hours in range(0, 30 * 24, choose(170, 31)):
        at = system.time - hours * HOUR
        expected = seen(
            system.tables["purchases"], "u2", at, lambda then, at=at: then > at - 7 * DAY
        )
        found = system.db.sql(
            "SELECT purchases_7d, spend_7d FROM user_features WHERE user_id = 'u2'"
            f" AND valid_from <= TIMESTAMP '{at:%Y-%m-%d %H:%M:%S}' ORDER BY valid_from DESC LIMIT 1"
        ).fetchall()
        assert (found or [(0, 0)]) == [expected], at
    told = system.step(31 * DAY)
    assert {row[1] for row in told} == {"-D"}
    system.finish()
