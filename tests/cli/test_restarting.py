"""When a server whose Spark has ended starts again, and when it ends instead."""

from __future__ import annotations

import time

import pytest

from headrace.errors import Code
from headrace.tools.cli import restarting
from headrace.tools.cli.restarting import LostDatabaseError, Restarts

LOST = LostDatabaseError(Code.UNAVAILABLE, "Spark has ended", "Its JVM was killed by SIGKILL.")


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    found: list[bool] = []
    monkeypatch.setattr(restarting, "_replace_process", lambda: found.append(True))
    monkeypatch.setattr(restarting, "_CLOSING_SECONDS", 0.05)
    return found


@pytest.mark.parametrize("least", [30.0, 0.0])
def test_a_server_starts_again_unless_its_spark_has_ended_early(
    replaced: list[bool], monkeypatch: pytest.MonkeyPatch, capsys, least: float
) -> None:
    is_early = least > 0
    monkeypatch.setattr(restarting, "_LEAST_SECONDS", least)
    restarts = Restarts()
    try:
        with restarts.on_loss():
            raise LOST
    except LostDatabaseError:
        assert is_early
    assert replaced == ([] if is_early else [True])
    assert ("The server starts again." in capsys.readouterr().err) is not is_early


@pytest.mark.parametrize(("lost", "seconds"), [(LOST, 2.0), (LOST, 0.0), (None, 0.3)])
def test_closing_takes_no_longer_than_it_may_once_spark_is_lost(
    replaced: list[bool], monkeypatch: pytest.MonkeyPatch, lost, seconds: float
) -> None:
    monkeypatch.setattr(restarting, "_LEAST_SECONDS", 0.0)
    with Restarts().closing(lost):
        until = time.monotonic() + seconds
        while time.monotonic() < until and not replaced:
            time.sleep(0.01)
    assert bool(replaced) is (lost is not None and seconds > 0)


def test_other_errors_are_errors(replaced: list[bool]) -> None:
    with pytest.raises(ValueError, match="wrong"), Restarts().on_loss():
        raise ValueError("wrong")
    assert replaced == []
