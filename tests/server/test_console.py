"""The console in a real browser: its pages, live rows, errors at their place, the keyboard."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from served import served
from server.browser import ENTER, ESCAPE, TAB, Browser, browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from served import Client, Served

CLICKSTREAM = Path(__file__).parents[2] / "examples" / "clickstream"
PAGES = (
    "", "#/sources", "#/views", "#/sinks", "#/workbench", "#/statements", "#/epochs", "#/relation/seen.totals",
    "#/relation/seen.totals/circuit", "#/relation/seen.orders/rejected", "#/candidates", "#/operations",
)  # fmt: skip
EDITOR = "document.querySelector('.editor')?.shadowRoot"
ROWS = "return [...document.querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))"
CUT = "return [...document.querySelectorAll('.scroll:has(.cards)')].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.ariaLabel)"
BEYOND = "return [...document.querySelectorAll('[role=tab], nav a, main button')].filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth).map((e) => e.innerText)"
OVERFLOW = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def page(server: Served) -> Iterator[Browser]:
    server.database.sql("""
        CREATE SCHEMA seen;
        CREATE TABLE seen.orders (id INT, user STRING, amount INT, PRIMARY KEY (id));
        CREATE MATERIALIZED VIEW seen.totals AS
        SELECT user, sum(amount) AS total FROM seen.orders GROUP BY user;
        CREATE VIEW seen.one AS SELECT 1 AS one;
        INSERT INTO seen.orders VALUES (1, 'ann', 30), (2, '<img src=x onerror=alert(1)>', 5);
    """)
    with browser(server.server.url) as opened:
        opened.size(1280, 800)
        yield opened


def typed(page: Browser, sql: str) -> None:
    """Open the workbench and type a statement."""
    page.open("#/workbench")
    page.run("sessionStorage.clear()")
    page.open("#/workbench")
    page.wait(lambda: page.run(f"return {EDITOR}?.activeElement"), "the editor")
    page.run(f"{EDITOR}.querySelector('.cm-content').focus()")
    page.press(sql)


@pytest.mark.long
def test_each_page_loads_without_a_complaint_and_fits_a_phone(page: Browser):
    for path in PAGES:
        page.open(path)
        page.wait(lambda: page.run("return document.querySelector('main h1') !== null"))
        page.wait(lambda: page.text("#live").startswith(("up to date", "views are")), "a live view")
        page.size(390, 844)
        page.wait(lambda: page.run(OVERFLOW) <= 0, f"{path} without scrolling")
        assert page.run(CUT) == [], path  # a row of a listing is a card there
        assert page.run(BEYOND) == [], path
        page.run("document.getElementById('menu').click()")
        assert "Operations" in page.text("nav")
        assert page.run(BEYOND) == [], path
        page.size(1280, 800)
    page.open("")
    page.wait_for("seen.totals", ".graph")
    page.wait(lambda: page.run("return document.querySelectorAll('.plot canvas').length") == 4)
    assert page.complaints() == []


@pytest.mark.long
def test_a_row_appears_and_changes_while_it_is_looked_at(page: Browser, client: Client):
    page.open("#/relation/seen.totals")
    page.wait_for("ann")
    page.wait_for("<img src=x onerror=alert(1)>")  # a value is a text, never markup
    page.run("window.line = document.querySelector('tbody tr')")
    client.sql("INSERT INTO seen.orders VALUES (3, 'cid', 7)")
    page.wait_for("cid")
    client.sql("INSERT INTO seen.orders VALUES (6, 'cid', 1)")
    page.wait(
        lambda: (
            page.run(ROWS) == [["<img src=x onerror=alert(1)>", "5"], ["ann", "30"], ["cid", "8"]]
        )
    )
    assert page.run("return window.line.isConnected")  # a selection in it would still be there
    client.sql("DELETE FROM seen.orders WHERE user LIKE '<%'")
    page.wait(lambda: page.run(ROWS) == [["ann", "30"], ["cid", "8"]])
    page.run("[...document.querySelectorAll('[role=tab]')][1].click()")
    page.wait_for("changes that are kept")
    page.wait_for("removed", "tbody")  # what was before the page was opened is there at once
    client.sql("INSERT INTO seen.orders VALUES (4, 'cid', 70)")
    page.wait_for("78")
    shown = page.text("tbody")
    assert "-U" in shown
    assert "+U" in shown
    page.run("[...document.querySelectorAll('[role=tab]')][2].click()")
    page.wait_for("Aggregate by group", ".viewport")
    page.wait(
        lambda: " an epoch" in page.run("return document.querySelector('.viewport').textContent")
    )
    page.run("document.querySelector('.viewport .node').dispatchEvent(new Event('click'))")
    page.wait_for("For each change", ".operator")
    page.run("[...document.querySelectorAll('[role=tab]')][4].click()")
    page.wait_for("CREATE MATERIALIZED VIEW")
    page.run("[...document.querySelectorAll('[role=tab]')][5].click()")
    page.wait_for("aggregation", "[role=tabpanel]")
    page.wait_for("seen.orders.amount", "[role=tabpanel]")
    assert page.complaints() == []


def test_a_plain_view_has_no_empty_summary_and_its_tabs_do_not_scroll(page: Browser):
    page.open("#/relation/seen.one")
    page.wait_for("not stored")
    page.wait_for("CREATE VIEW")
    page.wait(
        lambda: page.run("return document.querySelectorAll('.sql .k').length") >= 3, "colours"
    )
    empty = "return [...document.querySelectorAll('main .panel')].filter((e) => e.checkVisibility() && !e.innerText.trim()).length"
    assert page.run(empty) == 0
    assert (
        page.run("return getComputedStyle(document.querySelector('.tabs')).overflowY") == "hidden"
    )


def test_the_workbench_completes_runs_and_marks_an_error_at_its_place(page: Browser):
    typed(page, "SELECT * FROM seen.to")
    page.wait(lambda: page.run(f"return {EDITOR}.querySelector('.cm-tooltip-autocomplete')"))
    options = (
        f"return [...{EDITOR}.querySelectorAll('.cm-completionLabel')].map((e) => e.innerText)"
    )
    page.wait(lambda: page.run(options) == ["totals"], "the completion")
    time.sleep(0.2)  # a completion is not taken by a key that was on its way when it appeared
    page.press(ENTER)
    page.wait(
        lambda: "seen.totals" in page.run(f"return {EDITOR}.querySelector('.cm-line').innerText")
    )
    page.press(ENTER, control=True)
    page.wait_for("ann")
    assert page.complaints() == []
    typed(page, "SELECT totl FROM seen.totals")
    page.press(ESCAPE)
    page.press(ENTER, control=True)
    page.wait_for('Did you mean "total"?')
    marked = f"return {EDITOR}.querySelector('.cm-wrong')?.innerText"
    assert page.run(marked) == "totl"
    page.complaints()  # of the answer 400


def test_the_workbench_runs_one_thing_at_a_time(page: Browser):
    typed(page, "SELECT 1")
    page.press(ESCAPE)
    # The first answer comes only when the second request, if there is one, would have been sent.
    page.run("""
        const real = window.fetch;
        window.asked = [];
        window.fetch = (path, options) => {
            if (path !== "/v1/sql") return real(path, options);
            window.asked.push(options.body);
            return new Promise((resolve) => {
                window.answer = () => resolve(real(path, options));
            });
        };
    """)
    page.press(ENTER, control=True)
    page.wait(lambda: page.run("return window.asked.length === 1"), "the request")
    page.press(ENTER, control=True)
    page.wait_for("running for")
    assert page.run("return window.asked.length") == 1
    run = "return document.querySelector('button.primary').getAttribute('aria-disabled')"
    assert page.run(run) == "true"
    page.run("window.answer()")
    page.wait_for("1 row")
    assert page.run(run) == "false"


def pressed(page: Browser, label: str, within: str = "main") -> None:
    """Press the button with a label, once it is there."""
    find = (
        f"[...document.querySelectorAll('{within} button')].find((e) => e.innerText === '{label}')"
    )
    page.wait(lambda: page.run(f"return {find} !== undefined"), label)
    page.run(f"{find}.click()")


def test_a_candidate_is_swapped_in_and_dropped_by_buttons_that_ask_first(
    page: Browser, client: Client
):
    client.sql(
        "CREATE OR REPLACE MATERIALIZED VIEW seen.totals WITH (auto_swap = false) AS"
        " SELECT user, sum(amount) + 1 AS total FROM seen.orders GROUP BY user"
    )
    page.open("#/candidates")
    pressed(page, "Show difference")
    page.wait_for("2 rows changed", ".difference")
    pressed(page, "Swap…")
    assert "SWAP VIEW seen.totals" in page.text("dialog.ask")
    page.press(ESCAPE)  # nothing is done without a confirmation
    page.wait_for("ready to be swapped in")
    pressed(page, "Swap…")
    page.press(ENTER)
    page.wait_for("Swapped view seen.totals", "dialog.ask")
    pressed(page, "Close", "dialog.ask")
    page.wait_for("served before")
    assert client.rows("SELECT total FROM seen.totals WHERE user = 'ann'") == [[31]]
    pressed(page, "Roll back…")
    pressed(page, "Roll back", "dialog.ask")
    page.wait_for("Rolled back view seen.totals", "dialog.ask")
    pressed(page, "Close", "dialog.ask")
    pressed(page, "Drop…")
    pressed(page, "Drop", "dialog.ask")
    page.wait_for("No view has a candidate")
    pressed(page, "Close", "dialog.ask")
    assert page.complaints() == []


@pytest.mark.long
def test_rejected_rows_are_inserted_again_and_acknowledged(
    page: Browser, client: Client, server: Served, tmp_path: Path
):
    client.sql("CREATE TABLE seen.prices (id INT PRIMARY KEY, price INT)")
    (tmp_path / "prices.csv").write_text("id,price\n1,ten\n2,two\n3,3\nx,4\n")
    server.database.sql(f"COPY seen.prices FROM '{tmp_path}/prices.csv'")
    page.open("#/relation/seen.prices/rejected")
    page.wait_for("is not an INT", ".groups")
    assert page.run("return document.querySelectorAll('.group').length") == 2
    pressed(page, "Insert again…", ".group:first-child > .buttons")
    page.run("""
        const rows = document.querySelector('dialog.ask textarea');
        rows.value = rows.value.replace('"ten"', '10').replace('"two"', '20');
    """)
    pressed(page, "Insert again", "dialog.ask")
    page.wait_for("Inserted 2 rows", "dialog.ask")
    pressed(page, "Close", "dialog.ask")
    page.wait_for("1 row asks for attention, 2 acknowledged", "[role=tabpanel]")
    pressed(page, "Acknowledge all…")
    pressed(page, "Acknowledge all", "dialog.ask")
    page.wait_for("All rejected rows are acknowledged", "[role=tabpanel]")
    assert client.rows("SELECT sum(price) FROM seen.prices") == [[33]]
    pressed(page, "Close", "dialog.ask")
    client.sql("DROP TABLE seen.prices")


@pytest.mark.long
def test_the_search_opens_what_it_finds(page: Browser):
    page.open("")
    page.wait_for("seen.totals", ".graph")
    page.press("/")
    page.press("tota")
    page.wait_for("seen.totals", "#found")
    page.press(ENTER)
    page.wait(lambda: page.run("return location.hash") == "#/relation/seen.totals")


def test_a_relation_belongs_to_the_page_that_lists_its_kind(page: Browser):
    current = "return document.querySelector('nav [aria-current]')?.innerText"
    for name, listed in (("seen.orders", "Sources"), ("seen.totals", "Views")):
        page.open(f"#/relation/{name}")
        page.wait(lambda: page.run(current) == listed, listed)  # noqa: B023
    page.open("#/relation/seen.orders")
    page.wait_for("Read by\nseen.totals", ".facts")


@pytest.mark.long
def test_a_page_that_was_opened_without_its_server_appears_when_it_is_back(page: Browser):
    page.open("#/views")
    page.wait_for("seen.totals")
    page.run("""
        window.real = window.fetch;
        window.fetch = () => Promise.reject(new TypeError("Failed to fetch"));
        location.hash = "#/relation/seen.totals";
    """)
    page.wait_for("the server cannot be reached")
    page.run("window.fetch = window.real")
    page.wait_for("Circuit")
    assert "cannot be reached" not in page.text()


def test_an_error_over_several_lines_leaves_the_workbench_usable(page: Browser):
    typed(page, "SELECT 1 AS a; SELECT 2 AS b, x y z; SELECT 3 AS c")
    page.press(ESCAPE)
    run = "return document.querySelector('button.primary').getAttribute('aria-disabled')"
    page.run("""
        const real = window.fetch;
        window.fetch = async (path, options) => {
            const body = JSON.parse(options?.body ?? "{}");
            if (path !== "/v1/sql" || !body.sql.includes("x y z")) return real(path, options);
            const text = `SELECT url,\n  count(*) / 0\nFROM t`;
            const error = { code: "invalid", primary: "made up", detail: null, hint: null, span: { text, start: 0, end: text.length } };
            return new Response(JSON.stringify({ error }), { status: 400 });
        };
    """)
    page.press(ENTER, control=True)
    page.wait_for("made up", ".results")
    assert "^^^^^^^^^^^" in page.text(".results .mark")
    page.wait(lambda: page.run(run) == "false", "the button")
    shown = page.text(".results")
    assert "SELECT 1 AS a" in shown  # the results before the error are shown, those after are not
    assert "SELECT 3" not in shown
    page.press(ENTER, control=True)
    page.wait(lambda: page.run(run) == "false", "the button")
    page.complaints()


@pytest.mark.long
def test_what_is_left_out_is_counted_and_listed_with_its_error(page: Browser, client: Client):
    client.sql("""
        CREATE TABLE seen.probes (id INT PRIMARY KEY, celsius STRING);
        INSERT INTO seen.probes VALUES (1, '20'), (2, 'warm');
        CREATE MATERIALIZED VIEW seen.warmest WITH (on_error = 'quarantine') AS
        SELECT max(CAST(celsius AS INT)) AS celsius FROM seen.probes;
        CREATE TABLE seen.ratios (id INT PRIMARY KEY, a INT);
        CREATE MATERIALIZED VIEW seen.shares AS SELECT id, 1 / a AS share FROM seen.ratios;
        INSERT INTO seen.ratios VALUES (1, 0)
    """)
    page.open("")
    page.wait_for("stopped: division by zero", ".attention")
    page.wait_for("1 row in quarantine", ".attention")
    page.wait(lambda: page.run("return document.querySelector('.graph circle.warn') !== null"))
    page.run("document.querySelector('.attention li:last-child a').click()")
    page.wait_for("warm", "[role=tabpanel]")
    page.wait_for("cannot be cast", "[role=tabpanel]")
    assert "Problems 1" in page.text(".tabs")
    client.sql("DROP TABLE seen.probes CASCADE; DROP TABLE seen.ratios CASCADE")
    assert page.complaints() == []


def test_a_chart_says_its_greatest_value_and_how_long_it_is(page: Browser):
    page.open("")
    page.wait(lambda: page.text(".tile .extent").startswith("max "), "the extent")
    assert " in " in page.text(".tile .extent")


@pytest.mark.long
def test_the_workbench_follows_a_query_until_it_is_stopped(page: Browser, client: Client):
    typed(page, "SELECT user, total FROM seen.totals WHERE total > 1000 EMIT CHANGES")
    page.press(ESCAPE)
    page.press(ENTER, control=True)
    page.wait_for("following: 0 rows")
    client.sql("INSERT INTO seen.orders VALUES (5, 'eve', 2000)")
    page.wait_for("eve")
    page.run(
        "[...document.querySelectorAll('button')].find((e) => e.innerText === 'Cancel').click()"
    )
    page.wait_for("stopped")


@pytest.mark.long
def test_the_keyboard_reaches_whatever_can_be_used(page: Browser):
    wanted = """
        const roots = [document, ...[...document.querySelectorAll('*')].flatMap((e) => e.shadowRoot ?? [])];
        const found = roots.flatMap((root) => [...root.querySelectorAll(
          "a[href], button:not(:disabled), input, summary, [tabindex='0'], [contenteditable=true]")]);
        window.wanted = found.filter((e) => e.checkVisibility() && e.tabIndex >= 0);
        return window.wanted.length
    """
    reached = """
        let active = document.activeElement;
        while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
        (window.reached ??= new Set()).add(active);
        return window.wanted.filter((e) => !window.reached.has(e)).map((e) => e.outerHTML.slice(0, 120))
    """
    for path in ("", "#/workbench", "#/relation/seen.totals"):
        page.open(path)
        page.wait_for("seen.totals")
        total = page.run(wanted)
        left = page.run(reached)
        for _ in range(2 * total):
            page.press(TAB)
            left = page.run(reached)
            if not left:
                break
        assert left == [], path


@pytest.mark.long
def test_the_clickstreams_page_updates_by_itself_and_a_lost_server_is_said(
    server: Served, page: Browser
):
    server.database.sql((CLICKSTREAM / "statements.sql").read_text())
    try:
        with served(server.database, pages=CLICKSTREAM / "page") as running:
            own = Browser(page.driver, running.server.url)
            own.open("pages/")
            own.wait_for("./home")
            before = own.text("#total")
            own.wait(lambda: own.text("#total") != before, "another total")
            assert "most of ./home" in own.text("#total")
            own.wait_for("mobile", "table")
            own.wait_for("User_9, mobile: ./home", "#found")
            assert own.complaints() == []
            own.open("")
            own.wait_for("visits_by_url", ".graph")
            own.wait(lambda: any(map(str.isdigit, own.text("#live"))), "a first moment")
            assert own.text("#stale") == ""
        own.wait_for("Not connected: this is as of", "#stale")
        own.complaints()  # of connections that are refused
        page.driver.get("about:blank")
    finally:
        server.database.sql("DROP STREAM visits CASCADE")
