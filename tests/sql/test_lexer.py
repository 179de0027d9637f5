from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Code, HeadraceError
from headrace.planning.sql import quote, split
from headrace.planning.sql.lexer import TokenKind, identifier_value, string_value, tokens


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind.name, token.text) for token in tokens(text)]


def only(text: str) -> list[str]:
    return [token.text for token in tokens(text)]


def test_tokens_have_a_kind_a_text_and_a_place() -> None:
    text = "SELECT `a b`, \"c\" FROM t -- end\nWHERE x >= 1.5e3 AND y <> 'it''s'"
    assert kinds(text) == [
        ("WORD", "SELECT"),
        ("BACKQUOTED", "`a b`"),
        ("SYMBOL", ","),
        ("DQUOTED", '"c"'),
        ("WORD", "FROM"),
        ("WORD", "t"),
        ("WORD", "WHERE"),
        ("WORD", "x"),
        ("SYMBOL", ">="),
        ("NUMBER", "1.5e3"),
        ("WORD", "AND"),
        ("WORD", "y"),
        ("SYMBOL", "<>"),
        ("STRING", "'it''s'"),
    ]
    assert all(text[token.start : token.end] == token.text for token in tokens(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a -- b ; ' \" `\nc", ["a", "c"]),
        ("a -- b \\\nstill comment\nc", ["a", "c"]),
        ("a -- b", ["a"]),
        ("a /* b ; ' */ c", ["a", "c"]),
        ("a /* b /* nested */ still */ c", ["a", "c"]),
        ("SELECT /*+ BROADCAST(t) */ 1", ["SELECT", "1"]),
        ("a/**/b", ["a", "b"]),
        ("a - - b", ["a", "-", "-", "b"]),
        ("\ufeffa\u00a0b", ["a", "b"]),
    ],
)
def test_comments_and_space_are_skipped(text: str, expected: list[str]) -> None:
    assert only(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t.1", [("WORD", "t"), ("NUMBER", ".1")]),
        ("1a", [("WORD", "1a")]),
        ("1.a", [("NUMBER", "1"), ("SYMBOL", "."), ("WORD", "a")]),
        ("10L 1S 1Y 1.5BD 2e-3F", [("NUMBER", n) for n in ["10L", "1S", "1Y", "1.5BD", "2e-3F"]]),
        ("café_1", [("WORD", "café_1")]),
        ("a::int", [("WORD", "a"), ("SYMBOL", "::"), ("WORD", "int")]),
        ("x->y", [("WORD", "x"), ("SYMBOL", "->"), ("WORD", "y")]),
        ("a<=>b", [("WORD", "a"), ("SYMBOL", "<=>"), ("WORD", "b")]),
        ("$?@", [("SYMBOL", "$"), ("SYMBOL", "?"), ("SYMBOL", "@")]),
    ],
)
def test_words_numbers_and_symbols_are_told_apart(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ("'a'", "a"),
        ("'it''s'", "it's"),
        (r"'it\'s'", "it's"),
        (r"'a\\'", "a\\"),
        (r"'\n\t\r\0\b\Z\x'", "\n\t\r\0\b\x1ax"),
        (r"'50\% a\_b'", r"50\% a\_b"),
        (r"'\101\u00e9\U0001F600'", "Aé😀"),
        (r"'\uD83D\uDE00'", "😀"),
        (r"'\UFFFFFFFF'", "\ufffd"),
        (r"r'a\nb'", r"a\nb"),
        ('R"a\'b"', "a'b"),
        ('"a""b"', 'a"b'),
        ("'a\nb'", "a\nb"),
        ("\u20181\u2019", "1"),
        ("\u201cx\u201d", "x"),
        ("\u2019x\u2019", "x"),
        (r"'a''\''", "a''"),
    ],
)
def test_strings_have_the_value_that_spark_gives_them(text: str, value: str) -> None:
    (token,) = tokens(text)
    assert token.kind in {TokenKind.STRING, TokenKind.DQUOTED}
    assert string_value(token) == value


@given(st.text())
def test_a_quoted_identifier_reads_back_unchanged(name: str) -> None:
    (token,) = tokens(quote(name))
    assert token.kind is TokenKind.BACKQUOTED
    assert identifier_value(token) == name


@given(st.text(alphabet=st.characters(exclude_characters="\\'")))
def test_a_plain_string_reads_back_unchanged(value: str) -> None:
    (token,) = tokens(f"'{value}'")
    assert string_value(token) == value


@pytest.mark.parametrize(
    ("text", "primary", "place"),
    [
        ("SELECT 'a", "unterminated string", (1, 8)),
        ("SELECT 'a''", "unterminated string", (1, 8)),
        ("SELECT 'a\\'", "unterminated string", (1, 8)),
        ("a\n  'b\nc", "unterminated string", (2, 3)),
        ("r'a", "unterminated string", (1, 2)),
        ('SELECT "a', "unterminated quoted text", (1, 8)),
        ("SELECT `a", "unterminated quoted identifier", (1, 8)),
        ("SELECT \u20181'", "unterminated string", (1, 8)),
        ("SELECT \u201c1", "unterminated quoted text", (1, 8)),
        ("a /* b", "unterminated comment", (1, 3)),
        ("a /* b /* c */", "unterminated comment", (1, 3)),
    ],
)
def test_what_is_not_closed_is_reported_where_it_opens(
    text: str, primary: str, place: tuple[int, int]
) -> None:
    with pytest.raises(HeadraceError) as caught:
        list(tokens(text, file="f.sql"))
    error = caught.value
    assert (error.code, error.primary) == (Code.INVALID, primary)
    assert error.span is not None
    assert error.span.position == place
    assert error.span.file == "f.sql"
    assert error.hint is not None


def test_a_long_unterminated_string_fails_at_once() -> None:
    with pytest.raises(HeadraceError):
        list(tokens("'" + "a\\' '' " * 50_000))


def test_a_script_splits_at_semicolons_outside_strings_and_comments() -> None:
    script = "SELECT ';' -- ;\n;; /* ; */ ;\n  FLUSH ; SHOW `a;b` -- last"
    pieces = split(script, "s.sql")
    assert [piece.sql for piece in pieces] == ["SELECT ';'", "FLUSH", "SHOW `a;b`"]
    assert [piece.terminated for piece in pieces] == [True, True, False]
    assert [piece.span.position for piece in pieces] == [(1, 1), (3, 3), (3, 11)]
    assert all(piece.text == script and piece.file == "s.sql" for piece in pieces)


@pytest.mark.parametrize("script", ["", "  \n", ";;;", "-- nothing\n/* at all */;"])
def test_a_script_without_statements_has_no_pieces(script: str) -> None:
    assert split(script) == []


@given(st.text(alphabet="ab'\"`;-/*\\\n \u2018\u2019\u201c\u201d1.(", max_size=60))
def test_tokens_stand_in_order_and_cover_all_but_space_and_comments(text: str) -> None:
    try:
        found = list(tokens(text))
    except HeadraceError:
        return
    at = 0
    for token in found:
        assert at <= token.start < token.end
        gap = text[at : token.start]
        assert not gap.strip() or "--" in gap or "/*" in gap
        at = token.end
