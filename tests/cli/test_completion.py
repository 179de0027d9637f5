"""Completion of keywords, relations and columns."""

from __future__ import annotations

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from headrace.cli.completion import Names, SqlCompleter

_COLUMNS = {"orders": ["user_id", "unit price"], "Users": ["user_id"], "odd name": []}


def _completed(text: str, *, cursor: int | None = None) -> list[str]:
    asked: list[str] = []

    def columns(relation: str) -> list[str]:
        asked.append(relation)
        return _COLUMNS[relation]

    names = Names(lambda: _COLUMNS, columns)
    names.refresh()
    document = Document(text, cursor)
    completer = SqlCompleter(names, [r"\d", r"\timing"])
    found = [c.text for c in completer.get_completions(document, CompleteEvent())]
    assert len(asked) == len(set(asked)), "columns are asked for once"
    return found


def test_keywords_keep_the_case_of_what_is_typed() -> None:
    assert _completed("selec") == ["select"]
    assert _completed("SELEC") == ["SELECT"]


def test_relations_come_before_keywords_and_are_quoted_where_they_must_be() -> None:
    assert _completed("SELECT * FROM o") == ["`odd name`", "orders", "of", "on", "options", "or",
                                             "order", "outer", "over"]  # fmt: skip
    assert _completed("SELECT * FROM us")[0] == "Users"


def test_columns_are_those_of_the_relations_in_the_statement() -> None:
    assert _completed("SELECT u FROM orders", cursor=8)[:3] == ["user_id", "`unit price`", "Users"]
    assert "user_id" not in _completed("SELECT u FROM totals", cursor=8)


def test_without_a_word_only_names_are_offered() -> None:
    assert _completed("SELECT * FROM ") == ["Users", "`odd name`", "orders"]


def test_commands_are_completed() -> None:
    assert _completed("\\") == [r"\d", r"\timing"]
    assert _completed(r"\ti") == [r"\timing"]
