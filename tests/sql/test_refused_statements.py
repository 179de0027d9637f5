"""What is refused: ``refused.txt`` has blocks of a statement, its place, code, message and hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import Code, HeadraceError
from headrace.planning.sql import KEYWORDS, STATEMENTS, parse
from headrace.planning.sql.lexer import WORDS
from headrace.planning.sql.refusals import REFUSALS, Refusal
from length import each

BLOCKS = [
    block.split("\n")
    for block in (Path(__file__).parent / "refused.txt").read_text("utf-8").strip().split("\n\n")
]


def refused(text: str, file: str | None = None) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse(text, file)
    return caught.value


@pytest.mark.parametrize("block", BLOCKS, ids=[block[0] for block in BLOCKS])
def test_a_statement_is_refused_at_its_place_with_a_message_and_a_hint(block: list[str]) -> None:
    error = refused(block[0])
    assert error.span is not None
    _, carets = str(error.span).split("\n")
    hint = [f"hint: {error.hint}"] if error.hint else []
    assert [block[0], carets[7:], f"{error.code}: {error.primary}", *hint] == block
    assert not error.primary.endswith(".")
    assert error.hint is None or error.hint[-1] in ".?"
    if error.code is Code.UNSUPPORTED:
        assert error.primary.endswith("is not supported")
        assert error.hint is not None


def test_the_list_of_refused_statements_is_long() -> None:
    assert len({block[0] for block in BLOCKS}) == len(BLOCKS) >= 180


@pytest.mark.parametrize("block", each(6, BLOCKS), ids=lambda block: block[0])
def test_the_place_counts_lines_of_the_whole_script(block: list[str]) -> None:
    column = len(block[1]) - len(block[1].lstrip()) + 1
    error = refused(f"FLUSH; -- ;\n/*\n*/ SHOW TABLES;\n{block[0]}", "script.sql")
    assert error.span is not None
    assert error.span.position == (4, column)
    assert f"--> script.sql:4:{column}\n" in str(error)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: " ".join(refusal.words))
def test_each_refused_form_says_what_to_use_instead(refusal: Refusal) -> None:
    words = " ".join(refusal.words)
    error = refused(f"{words.lower()} x y")
    assert (error.code, error.primary) == (refusal.code, f"{refusal.thing} is not supported")
    assert error.hint == refusal.hint
    assert error.span is not None
    assert error.span.source == words.lower()


def test_refusals_are_in_order_and_said_once() -> None:
    words = [refusal.words for refusal in REFUSALS]
    assert words == sorted(set(words))


@pytest.mark.parametrize("words", ["query", "function", "schema"])
def test_a_refused_word_may_be_a_name_where_only_a_name_can_stand(words: str) -> None:
    assert parse(f"DESCRIBE {words}")


def test_keywords_are_in_order_and_know_every_statement() -> None:
    assert list(WORDS) == sorted(set(WORDS) - set(STATEMENTS))
    assert set(KEYWORDS) == {*WORDS, *STATEMENTS}


def test_a_message_shows_only_the_beginning_of_a_long_word() -> None:
    error = refused("DROP " + "x" * 5000)
    assert len(str(error)) < 400


def test_a_message_does_not_show_a_string_that_may_be_a_secret() -> None:
    error = refused("CREATE TABLE t (a INT) WITH (password = 'hunter2' 'hunter3')")
    assert "hunter3" not in error.primary
    assert "hunter2" not in str(error)
