from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Code, HeadraceError, Span, masked, nearest

SCRIPT = "SELECT *\nFROM orders\nGROUP BY usr_id;\n"
SPAN = Span(SCRIPT, 30, 36, "views.sql")
ERROR = HeadraceError(
    Code.INVALID,
    'column "usr_id" does not exist in stream "orders"',
    "The stream has 3 columns.",
    'Did you mean "user_id"?',
    SPAN,
)


def fields(error: HeadraceError) -> tuple[object, ...]:
    return (error.code, error.primary, error.detail, error.hint, error.span)


def fail() -> None:
    raise ERROR


def test_an_error_shows_its_code_place_detail_and_hint() -> None:
    assert str(ERROR) == (
        'error[invalid]: column "usr_id" does not exist in stream "orders"\n'
        "  --> views.sql:3:10\n"
        "   3 | GROUP BY usr_id;\n"
        "                ^^^^^^\n"
        "detail: The stream has 3 columns.\n"
        'hint: Did you mean "user_id"?'
    )


def test_an_error_without_place_is_one_line() -> None:
    assert str(HeadraceError(Code.UNAVAILABLE, "broker was away")) == (
        "error[unavailable]: broker was away"
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_keeps_every_field(protocol: int) -> None:
    again = pickle.loads(pickle.dumps(ERROR, protocol))  # noqa: S301 - our own bytes
    assert type(again) is HeadraceError
    assert fields(again) == fields(ERROR)
    assert str(again) == str(ERROR)
    assert fields(copy.deepcopy(ERROR)) == fields(ERROR)


def test_an_error_crosses_a_process_border_whole() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        caught = pool.submit(fail).exception()
    assert isinstance(caught, HeadraceError)
    assert fields(caught) == fields(ERROR)


def test_notes_survive_pickling() -> None:
    error = HeadraceError(Code.INTERNAL, "x")
    error.add_note("in epoch 7")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert again.__notes__ == ["in epoch 7"]


def test_a_place_is_added_once() -> None:
    error = HeadraceError(Code.INVALID, "x", "Detail.", "Hint.")
    placed = error.at(SPAN)
    assert fields(placed) == (*fields(error)[:4], SPAN)
    assert placed.at(Span("other", 0, 1)) is placed
    assert error.span is None


@pytest.mark.parametrize(
    ("text", "start", "end", "shown"),
    [
        ("SELECT 1", 7, 8, "   1 | SELECT 1\n              ^"),
        ("", 0, 0, "   1 | \n       ^"),
        ("a", 1, 1, "   1 | a\n        ^"),
        ("a\n", 2, 2, "   2 | \n       ^"),
        ("\tx\ty z", 3, 4, "   1 | \tx\ty z\n       \t \t^"),
        ("ab\ncd\nef", 1, 7, "   1 | ab\n        ^"),
        ("a\r\nbc\r\n", 3, 5, "   2 | bc\n       ^^"),
        ("a bcd", 2, 99, "   1 | a bcd\n         ^^^"),
        ("表 x 'é'", 2, 3, "   1 | 表 x 'é'\n          ^"),
        ("x 表表", 2, 4, "   1 | x 表表\n         ^^^^"),
        ("a\x1b[31m b", 7, 8, "   1 | a\ufffd[31m b\n              ^"),
    ],
    ids=[
        "a word",
        "no text",
        "the end",
        "the end after a newline",
        "after tabs",
        "over several lines",
        "carriage returns",
        "past the end",
        "after wide characters",
        "under wide characters",
        "control characters",
    ],
)
def test_carets_stand_under_the_stretch(text: str, start: int, end: int, shown: str) -> None:
    assert str(Span(text, start, end)) == shown


def test_lines_are_counted_from_the_line_of_the_text_in_its_file() -> None:
    span = Span("a\nb", 2, 3, "script.sql", 40)
    assert span.position == (41, 1)
    assert str(span) == "  --> script.sql:41:1\n  41 | b\n       ^"


def test_of_a_long_line_the_part_around_the_stretch_is_shown() -> None:
    text = "(1), " * 100 + "oops" + ", (2)" * 100
    shown, carets = str(Span(text, 500, 504)).split("\n")
    assert len(shown) < 150
    assert shown.index("oops") == carets.index("^^^^")
    assert shown.startswith("   1 | ... ")
    assert shown.endswith("... ")


def test_the_repr_of_a_span_leaves_out_the_text_that_may_hold_secrets() -> None:
    assert repr(Span("password = 'x'", 0, 8)) == "Span(start=0, end=8, file=None, line=1)"
    assert Span("password = 'x'", 0, 8).source == "password"


@given(st.text(max_size=300), st.integers(0, 310), st.integers(0, 310))
def test_any_place_in_any_text_can_be_shown(text: str, start: int, width: int) -> None:
    start = min(start, len(text))
    shown = str(Span(text, start, start + width))
    assert shown.count("\n") == 1
    assert "^" in shown


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("ordres", ["orders", "users"], "orders"),
        ("USERS", ("orders", "Users"), "Users"),
        ("zzz", ["orders"], None),
        ("x", [], None),
    ],
)
def test_the_nearest_word_is_found_regardless_of_case(
    word: str, known: list[str], found: str | None
) -> None:
    assert nearest(word, known) == found


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("WITH ('password' = 'x1', topic = 't')", "WITH ('password' = '**', topic = 't')"),
        ('sasl.jaas.config="a ""b"" c"', 'sasl.jaas.config="*********"'),
        ("Secret_Key = 'it''s'", "Secret_Key = '*****'"),
        ("auth.token = 'unterminated", "auth.token = '************"),
        (r"api_key='a\'b'", "api_key='****'"),
        ("topic = 'orders'", "topic = 'orders'"),
        ("WHERE password = other", "WHERE password = other"),
        ("url = 'http://ann:pw@host/a@b'", "url = 'http://******@host/a@b'"),
        ("url = 'http://ann:p@w@host/a'", "url = 'http://*******@host/a'"),
        ("url = 'http://ann:p/w@host/a'", "url = 'http://ann:***@host/a'"),
        ("'https://t0ken@host:80/'", "'https://*****@host:80/'"),
        ("'redis://:pw@host'", "'redis://***@host'"),
        ("'http://host/a?sig=x1&to=y'", "'http://host/a?sig=**&to=y'"),
        ("'http://host?my_token=x1'", "'http://host?my_token=**'"),
        ("'http://host:8080/a@b', '[::1]'", "'http://host:8080/a@b', '[::1]'"),
        ("'postgresql://ann@host/db'", "'postgresql://ann@host/db'"),
        ("'SASL_SSL://b1:9092,SASL_SSL://b2:9092' @", "'SASL_SSL://b1:9092,SASL_SSL://b2:9092' @"),
        ("'http://host/a?key_id=1'", "'http://host/a?key_id=1'"),
        (
            "EXPLAIN SCRIPT \"CREATE STREAM s (k INT) WITH (password = \\\"top\\\", 'a.token' = 'x')\"",
            'EXPLAIN SCRIPT "CREATE STREAM s (k INT) WITH (password = \\"***********************"',
        ),
    ],
)
def test_the_values_of_secret_options_are_masked(sql: str, shown: str) -> None:
    assert masked(sql) == shown


def test_a_message_that_quotes_a_url_shows_no_password_of_it() -> None:
    error = HeadraceError(
        Code.INVALID, "'ftp://ann:hunter2@host' is not the URL of an HTTP server", "ftp://a:pw@b"
    )
    for shown in (str(error), str(error.to_json()), repr(error)):
        assert "hunter2" not in shown
        assert "pw" not in shown


def test_the_line_of_an_error_shows_no_secret() -> None:
    text = "WITH ('password' = 'hunter2', topc = 't')"
    shown = str(Span(text, 30, 34))
    assert "hunter2" not in shown
    assert shown.endswith(" " * (7 + 30) + "^^^^")


@pytest.mark.parametrize("before", ["", "x" * 150, "SELECT 1,\n" * 50, "y" * 100_000])
@pytest.mark.parametrize("after", ["", "\nFROM t" * 50, "z" * 100_000])
def test_an_excerpt_has_the_place_in_a_short_text(before: str, after: str) -> None:
    span = Span(before + "wrong" + after, len(before), len(before) + 5, "views.sql", 3)
    short = span.excerpt()
    assert len(short.text) <= 200
    assert short.text in span.text
    assert (short.source, short.file) == ("wrong", "views.sql")
    assert short.position[0] == span.position[0]
    if "\n" in before:
        assert short.position == span.position


def test_of_a_long_range_an_excerpt_shows_the_beginning() -> None:
    short = Span.whole("0123456789" * 1000).excerpt()
    assert len(short.text) <= 200
    assert short.start == 0
    assert short.source == ("0123456789" * 1000)[: short.end]
    assert short.end >= 100


def test_a_secret_that_extends_into_an_excerpt_is_masked() -> None:
    secret = "s3cret" * 500
    text = f"CREATE SECRET a AS '{secret}' wrong"
    value = HeadraceError(Code.INVALID, "x", span=Span(text, len(text) - 5, len(text))).to_json()
    assert "s3" not in value["span"]["text"]
    assert value["span"]["text"].endswith("*' wrong")
