from __future__ import annotations

import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import Code, HeadraceError
from headrace.planning.sql import KEYWORDS, parse, split
from headrace.planning.sql.lexer import tokens
from headrace.planning.sql.refusals import FIRST_WORDS
from length import choose, each
from sql.test_statements import STATEMENTS

VALID = [text for text, _ in STATEMENTS]
PIECES = sorted({token.text for text in VALID for token in tokens(text)})
WORDS = st.sampled_from([*KEYWORDS, *FIRST_WORDS, *PIECES, "CASE", "EMIT", "TRANSFORM", "__x", ";"])
MARKS = st.sampled_from(
    [*"()[]{}<>,;.=+-*'\"`\\:", "/*", "*/", "--", "\n", "\u2018", "\u2019", "1"]
)
SOUP = st.lists(WORDS | MARKS | st.text(max_size=3), max_size=25).map(" ".join)


def read(text: str) -> None:
    """Read a text; a refusal must be well formed and must be able to show itself."""
    try:
        parse(text, "fuzz.sql")
    except HeadraceError as error:
        refusal = error
    else:
        return
    assert refusal.code in {Code.INVALID, Code.UNSUPPORTED}
    assert refusal.span is not None
    assert 0 <= refusal.span.start <= refusal.span.end <= len(text)
    assert "^" in str(refusal)


@settings(max_examples=choose(100, 600), deadline=None)
@given(SOUP)
@example("CREATE TABLE t (a " + "ARRAY<" * 5000)
@example("SELECT " + "(" * 3_000)
@example("SELECT 1 " + "EMIT CHANGES " * 3000)
@example("SET '\ud800' = '\\ud800'")
def test_soup_of_tokens_is_read_or_refused(text: str) -> None:
    read(text)


@settings(max_examples=choose(50, 300), deadline=None)
@given(st.text(max_size=80) | st.text(alphabet=string.printable, max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


@pytest.mark.parametrize("text", each(3, VALID))
def test_every_truncation_of_a_statement_is_read_or_refused(text: str) -> None:
    for end in range(len(text)):
        read(text[:end])
        read(text[end:])


@settings(max_examples=choose(100, 600), deadline=None)
@given(st.sampled_from(VALID), st.data())
def test_a_statement_with_tokens_dropped_swapped_or_put_in_is_read_or_refused(
    text: str, data: st.DataObject
) -> None:
    words = [token.text for token in tokens(text)]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(words)))
        match data.draw(st.sampled_from(["drop", "put in", "repeat"])):
            case "drop":
                del words[place : place + 1]
            case "put in":
                words.insert(place, data.draw(WORDS | MARKS))
            case _:
                words[place:place] = words[: data.draw(st.integers(0, len(words)))]
    read(" ".join(words))


@settings(max_examples=choose(50, 300), deadline=None)
@given(st.lists(st.sampled_from(VALID), min_size=1, max_size=6))
def test_a_script_has_the_statements_of_its_parts(texts: list[str]) -> None:
    script = "\n;\n".join(texts)
    alone = [parse(text)[0] for text in texts]
    together = parse(script)
    assert [type(statement) for statement in together] == [type(one) for one in alone]
    assert [piece.sql for piece in split(script)] == [split(text)[0].sql for text in texts]


def test_a_long_script_is_read_whole() -> None:
    rows = ", ".join(f"({n}, 'name-{n}', {n}.5)" for n in range(choose(3_000, 20_000)))
    assert len(parse(f"INSERT INTO t VALUES {rows}; FLUSH")) == 2
