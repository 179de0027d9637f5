"""A database beyond one machine goes on, and is right, whichever part of it is killed."""

from __future__ import annotations

import pytest

from faults.chaos import run
from servers.machine import Unavailable

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("where", ["alone", "on a cluster"])
def test_no_acknowledged_row_is_lost_or_doubled_whatever_is_killed(where: str) -> None:
    try:
        run(6, 3, cluster=where == "on a cluster")
    except Unavailable as reason:
        pytest.skip(str(reason))
