"""What is refused once Spark knows what a query means.

``refused.txt`` has blocks of a query, its place, code and message, and what else is said.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import Code, HeadraceError
from length import each

pytestmark = pytest.mark.spark

BLOCKS = [
    block.split("\n")
    for block in (Path(__file__).parent / "refused.txt").read_text("utf-8").strip().split("\n\n")
]


@pytest.mark.parametrize("block", each(3, BLOCKS), ids=[block[0] for block in each(3, BLOCKS)])
def test_a_query_is_refused_at_its_place_with_a_reason(planned, block):
    with pytest.raises(HeadraceError) as caught:
        planned.circuit(block[0])
    error = caught.value
    assert error.span is not None
    _, carets = str(error.span).split("\n")
    said = [block[0], carets[7:], f"{error.code}: {error.primary}"]
    said += [f"detail: {error.detail}"] if error.detail else []
    said += [f"hint: {error.hint}"] if error.hint else []
    assert said == block


@pytest.mark.parametrize("block", BLOCKS, ids=[block[0] for block in BLOCKS])
def test_a_refusal_is_no_defect_and_one_line(block):
    code, _, primary = block[2].partition(": ")
    assert code in (Code.INVALID, Code.UNSUPPORTED)
    assert not primary.endswith(".")


def test_the_list_is_long_and_has_nothing_twice():
    assert len({block[0] for block in BLOCKS}) == len(BLOCKS) >= 140


@pytest.mark.long
def test_a_query_of_very_many_parts_is_refused_as_nested_too_deeply(planned):
    with pytest.raises(HeadraceError, match="nested so deeply") as caught:
        planned.circuit(" UNION ALL ".join(["SELECT k FROM t"] * 600))
    assert caught.value.code is Code.UNSUPPORTED
    assert caught.value.span is not None
