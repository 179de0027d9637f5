"""Results in the forms that programs take them in, without a database."""

from datetime import datetime

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.statements.results import Result, Subscription, all_of, last_of
from headrace.types import Epoch

LARGE = 2**53 + 1
"""A number that no float is."""


def result(**columns) -> Result:
    return Result(pa.table(columns), Epoch(7))


def nested(*, arrow_type=None, values) -> Result:
    return result(x=pa.array(values, arrow_type))


def test_integers_with_a_null_stay_integers_in_pandas():
    frame = result(n=[LARGE, None], m=[1, 2]).to_pandas()
    assert frame["n"].iloc[0] == LARGE
    assert frame["n"].dtype == pd.Int64Dtype()
    assert frame["n"].isna().tolist() == [False, True]
    assert frame["m"].dtype == "int64"


@pytest.mark.parametrize("types", ["numpy", "nullable", "arrow"])
def test_each_kind_of_types_keeps_values_and_nulls(types):
    rows = [(LARGE, "a", True, 1.5, datetime(2026, 11, 29)), (None, None, None, None, None)]  # noqa: DTZ001
    made = result(
        **{
            name: list(values)
            for name, values in zip("nsbft", zip(*rows, strict=True), strict=True)
        }
    )
    frame = made.to_pandas(types=types)
    assert [*frame.iloc[0]][:4] == [*rows[0]][:4]
    assert frame["t"].iloc[0] == pd.Timestamp(rows[0][4])
    assert frame.iloc[1].isna().all()
    assert frame.columns.tolist() == [*"nsbft"]


def test_lists_of_integers_with_a_null_stay_integers_in_pandas():
    in_struct = pa.struct([("xs", pa.list_(pa.int64()))])
    in_map = pa.map_(pa.string(), pa.list_(pa.int64()))
    assert nested(values=[[LARGE, None], None]).to_pandas()["x"].tolist() == [[LARGE, None], None]
    made = nested(values=[{"xs": [LARGE, None]}, None], arrow_type=in_struct).to_pandas()
    assert made["x"].tolist() == [{"xs": [LARGE, None]}, None]
    made = nested(values=[[("k", [LARGE, None])], None], arrow_type=in_map).to_pandas()
    assert made["x"].tolist() == [[("k", [LARGE, None])], None]


def test_a_date_beyond_python_is_text_in_pandas_too():
    far = pa.array([3_000_000, None], pa.int32()).cast(pa.date32())
    assert result(d=far).to_pandas()["d"].tolist() == ["+10183-09-21", None]


def test_a_frame_may_have_two_columns_of_one_name_or_none_at_all():
    twice = Result(
        pa.Table.from_arrays([pa.array([1, None]), pa.array([2, 3])], ["a", "a"]), Epoch(1)
    )
    assert twice.to_pandas().columns.tolist() == ["a", "a"]
    assert twice.to_pandas().iloc[:, 1].tolist() == [2, 3]
    assert Result(None, Epoch(1), "done").to_pandas().shape == (0, 0)
    with pytest.raises(HeadraceError) as refused:
        twice.to_pylist()
    assert refused.value.primary == 'two columns have the name "a"'


def test_other_types_are_refused_with_those_that_there_are():
    with pytest.raises(HeadraceError) as refused:
        result(a=[1]).to_pandas(types="nullables")
    assert refused.value.hint == 'Did you mean "nullable"?'


def test_libraries_that_read_arrow_take_a_result_as_it_is():
    made = result(n=[LARGE, None])
    assert pa.table(made).to_pylist() == made.to_pylist() == [{"n": LARGE}, {"n": None}]
    assert duckdb.sql("SELECT sum(n) FROM made").fetchall() == [(LARGE,)]


def test_polars_that_is_not_installed_is_said(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(HeadraceError) as refused:
        result(a=[1]).to_polars()
    assert "pip install polars" in refused.value.hint


class Followed(Subscription):
    """A subscription to nothing."""

    columns = ("a",)
    epoch = Epoch(0)

    def _next(self, timeout):  # noqa: ARG002
        return []

    def _release(self):
        pass


def test_a_subscription_is_a_result_that_has_no_end():
    followed = Followed(None)
    assert isinstance(followed, Result)
    assert followed.kind == "changes"
    assert followed
    for whole in (
        followed.fetchall,
        followed.to_pandas,
        followed.to_pylist,
        lambda: pa.table(followed),
    ):
        with pytest.raises(HeadraceError) as refused:
            whole()
        assert refused.value.code is Code.INVALID
        assert "Iterate over it" in refused.value.hint


def test_a_script_leaves_only_subscriptions_open_that_it_returns():
    first, second = Followed(None), Followed(None)
    assert last_of([first, second], "SUBSCRIBE a; SUBSCRIBE b") is second
    assert (first.is_open, second.is_open) == (False, True)

    def failing():
        yield second
        raise HeadraceError(Code.INVALID, "no")

    with pytest.raises(HeadraceError):
        all_of(failing())
    assert not second.is_open
