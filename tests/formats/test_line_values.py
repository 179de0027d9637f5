"""Values of messages kept as lines are the same values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.io.formats.messages import LineValues

parts = st.lists(st.lists(st.none() | st.text("ab\n", max_size=3).map(str.encode), max_size=4))


@given(parts)
def test_lines_are_the_values_that_were_added(given_parts: list[list[bytes | None]]) -> None:
    lines, expected = LineValues(), list[bytes | None]()
    for part in given_parts:
        fits = all(value is not None and b"\n" not in value for value in part)
        assert lines.add(part) == fits
        expected += part if fits else []
    assert list(lines) == expected
    assert len(lines) == len(expected)
    assert [lines[at] for at in range(len(lines))] == expected
    assert [lines[at - len(lines)] for at in range(len(lines))] == expected
    assert lines[1:3] == expected[1:3]
    if expected:
        assert lines.data.split(b"\n") == expected
        assert lines.bytes == len(lines.data) + 1
    twice = LineValues()
    twice.extend(lines)
    twice.extend(lines)
    assert list(twice) == expected * 2
