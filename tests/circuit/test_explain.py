"""A circuit as people see it."""

from __future__ import annotations

import pytest

from headrace.circuit.explain import explain

pytestmark = pytest.mark.spark

QUERY = """SELECT t.s, count(*) AS n, sum(u.v) AS total FROM t JOIN u ON t.k = u.k AND t.g < u.v
WHERE t.x > 3 GROUP BY t.s HAVING count(*) > 1"""

GOLDEN = """\
Integrate: the view's rows
    keeps 9/rows by (s): 3 columns
    per change: one row written; no lookup, no recompute
  Filter (n > 1L), linear
    LinearAggregate by (t.s): count(1), sum(u.v)
        keeps 9/aggregate2.groups by (g0): 1 columns
        per change: one lookup of its group's totals, up to two rows out; no recompute
      Project (s, v), linear
        InnerJoin on t.k = u.k, then (t.g < u.v), bilinear
            keeps 9/join1.left by (l0): 3 columns
            keeps 9/join1.right by (r0): 2 columns
            per change: one lookup on the other side, and the pairs that come and go; no recompute
          Project (k, g, s), linear
            Filter (((t.x IS NOT NULL) AND (t.x > 3L)) AND ((t.k IS NOT NULL) AND (t.g IS NOT NULL))), linear
              Source t (k, g, x, s)
          Filter ((u.k IS NOT NULL) AND (u.v IS NOT NULL)), linear
            Source u (k, v)"""


def test_every_operator_says_what_it_keeps_and_what_a_change_costs(planned):
    assert explain(planned.circuit(QUERY), planned.names.__getitem__, {}) == GOLDEN.split("\n")
