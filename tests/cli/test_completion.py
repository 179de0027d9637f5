"""Completion of keywords, relations and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from headrace.tools.cli.shell import Names, ShellCompleter

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = {"orders": ["user_id", "unit price"], "Users": ["user_id"], "odd name": []}


def _completed(text: str, *, cursor: int | None = None) -> list[str]:
    asked: list[str] = []

    def columns(relation: str) -> list[str]:
        asked.append(relation)
        return _COLUMNS[relation]

    names = Names(lambda: _COLUMNS, columns)
    names.refresh()
    document = Document(text, cursor)
    completer = ShellCompleter(names)
    found = [c.text for c in completer.get_completions(document, CompleteEvent())]
    assert len(asked) == len(set(asked)), "columns are asked for once"
    return found


def test_keywords_keep_the_case_of_what_is_typed() -> None:
    assert _completed("selec") == ["select"]
    assert _completed("SELEC") == ["SELECT"]


def test_the_words_of_branches_are_completed() -> None:
    assert _completed("CREATE bra") == ["branch", "branches"]
    assert _completed("SHOW BRANCHE") == ["BRANCHES"]


def test_relations_come_before_keywords_and_are_quoted_where_they_must_be() -> None:
    found = _completed("SELECT * FROM users WHERE o")
    assert found == ["`odd name`", "orders", "of", "on", "options", "or", "order", "outer", "over"]
    assert _completed("SELECT * FROM us")[0] == "Users"


def test_only_relations_are_offered_where_only_they_can_stand() -> None:
    for before in ("SELECT * FROM o", "select 1 from users join o", "insert into o", "verify o"):
        assert _completed(before) == ["`odd name`", "orders"], before


def test_a_fill_is_paused_by_the_name_of_its_view() -> None:
    assert _completed("PAUSE FIL") == ["FILL", "FILTER"]
    for before in ("PAUSE FILL OF o", "resume fill of o"):
        assert _completed(before) == ["`odd name`", "orders"], before


def test_an_alter_names_a_relation_and_then_its_columns() -> None:
    for before in ("ALTER STREAM o", "alter table o", "ALTER MATERIALIZED VIEW o", "ALTER VIEW o"):
        assert _completed(before) == ["`odd name`", "orders"], before
    assert _completed("ALTER STREAM orders DROP COLUMN us")[0] == "user_id"
    assert _completed("ALTER STREAM orders RENAME COLUMN unit")[0] == "`unit price`"
    assert _completed("ALTER TABLE orders DROP COLUMN us")[0] == "user_id"
    assert _completed("ALTER TABLE orders RENAME COLUMN unit")[0] == "`unit price`"
    assert "rename" in _completed("alter stream orders re")


def test_before_from_the_columns_of_all_relations_are_offered() -> None:
    assert _completed("SELECT us")[0] == "user_id"
    assert _completed("SELECT unit")[0] == "`unit price`"
    assert "user_id" not in _completed("SHOW u")


def test_after_a_point_only_the_columns_of_that_relation_are_offered() -> None:
    assert _completed("SELECT o. FROM orders o, Users u", cursor=9) == ["user_id", "`unit price`"]
    assert _completed("SELECT 1 FROM orders AS o JOIN Users u ON u.us") == ["user_id"]
    assert _completed("SELECT orders.uni FROM orders", cursor=17) == ["`unit price`"]


def test_names_in_a_schema_are_completed() -> None:
    names = Names(lambda: ["gold.orders"], lambda _: ["user_id"])
    names.refresh()
    completer = ShellCompleter(names)

    def found(text: str) -> list[str]:
        return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]

    assert found("SELECT * FROM go") == ["gold.orders"]
    assert found("SELECT * FROM gold.or") == ["orders"]
    assert found("SELECT * FROM gold.orders AS o WHERE o.us") == ["user_id"]
    assert found("SELECT * FROM gold.orders WHERE us")[0] == "user_id"


def test_a_statement_begins_with_what_a_statement_can_begin_with() -> None:
    assert _completed("de") == ["delete", "describe"]
    assert _completed("SELECT 1; S") == ["SELECT", "SUBSCRIBE", "SHOW", "SWAP", "SET"]


def test_columns_of_the_statement_before_are_not_offered() -> None:
    assert "user_id" not in _completed("SELECT 1 FROM orders; SHOW u")


def test_columns_are_those_of_the_relations_in_the_statement() -> None:
    assert _completed("SELECT u FROM orders", cursor=8)[:3] == ["user_id", "`unit price`", "Users"]
    assert "user_id" not in _completed("SELECT u FROM totals", cursor=8)


def test_without_a_word_only_names_are_offered() -> None:
    assert _completed("SELECT * FROM ") == ["Users", "`odd name`", "orders"]


def test_commands_and_what_follows_them_are_completed(tmp_path: Path) -> None:
    assert {r"\d", r"\timing", r"\watch"} < set(_completed("\\"))
    assert _completed(r"\ti") == [r"\timing"]
    assert _completed(r"\d o") == ["orders"]
    assert _completed(r"\format js") == ["json"]
    assert _completed(r"\h create ta") == ["CREATE TABLE"]
    assert _completed(r"\x ") == ["on", "off"]
    assert _completed(r"SELECT 1 \wa") == [r"\watch"]
    (tmp_path / "setup.sql").touch()
    assert _completed(rf"\i {tmp_path}/se") == [f"{tmp_path}/setup.sql"]
