"""Keys made of columns: different values make different keys, and a key says which they were."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Code, HeadraceError
from headrace.io.connectors.redis.access import Pattern

PATTERNS = ["{a}", "user:{a}", "{a}:{b}", "x/{b}|%{a}/", "{a}::{b}é{c}", "{{{a}}}-{b}"]
VALUES = st.text(alphabet=":%/é{}-ab2\n", max_size=6)


@pytest.mark.parametrize("text", PATTERNS)
@given(first=st.tuples(VALUES, VALUES, VALUES), second=st.tuples(VALUES, VALUES, VALUES))
def test_different_values_make_different_texts_that_are_read_back(
    text: str, first: tuple[str, str, str], second: tuple[str, str, str]
) -> None:
    pattern = Pattern.of(text)
    rows = pa.table(dict(zip("abc", zip(first, second, strict=True), strict=True)))
    made = pattern.of_rows(rows).to_pylist()
    own = [tuple(rows[name][at].as_py() for name in pattern.columns) for at in range(2)]
    assert (made[0] == made[1]) == (own[0] == own[1])
    assert [tuple(pattern.values(each) or ()) for each in made] == own


def test_a_value_is_written_as_it_is_where_no_other_follows() -> None:
    rows = pa.table({"a": ["x:y%", None], "n": [-5, 7]})
    assert Pattern.of("user:{a}").of_rows(rows).to_pylist() == ["user:x:y%", None]
    assert Pattern.of("{n}:{a}").of_rows(rows).to_pylist() == ["-5:x%3Ay%25", None]
    assert Pattern.of("all").of_rows(rows).to_pylist() == ["all", "all"]
    assert Pattern.of("user:{a}").values("usr:x") is None
    assert Pattern.of("a*{a}[?]{b}").glob == r"a\**\[\?\]*"


@pytest.mark.parametrize("text", ["{a", "a}", "{}", "{a}{b}", "{a}%{b}", "{a}:{a}"])
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(HeadraceError) as error:
        Pattern.of(text)
    assert error.value.code is Code.INVALID
    assert error.value.hint
