"""Opening a database whose views were stored by another circuit than the one planned now."""

from __future__ import annotations

import pytest

import headrace
from headrace.circuit.digest import FORMAT
from headrace.errors import Code, HeadraceError

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("stored", "code", "said"),
    [
        ("0f3a9c1d0f3a9c1d0f3a9c1d0f3a9c1d", Code.UNSUPPORTED, "by another version of Headrace"),
        (f"{FORMAT}:0f3a9c1d0f3a9c1d0f3a9c1d0f3a9c1d", Code.CORRUPT, "stored in another form"),
    ],
    ids=["another format", "another circuit"],
)
def test_a_view_of_another_digest_is_not_opened(tmp_path, spark, monkeypatch, stored, code, said):
    settings = {"spark": spark, "continuous": False, "partitions": 2}
    with monkeypatch.context() as patch:
        patch.setattr("headrace.statements.defining.views.digest", lambda _circuit: stored)
        with headrace.connect(tmp_path, **settings) as db:
            db.sql("CREATE TABLE t (k INT)")
            db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS n FROM t GROUP BY k")
    with pytest.raises(HeadraceError) as refused:
        headrace.connect(tmp_path, **settings)
    assert refused.value.code is code
    assert said in refused.value.primary
    assert '"v"' in refused.value.primary
