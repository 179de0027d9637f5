"""How long a ledger's database is waited for that does not answer."""

from __future__ import annotations

import time

from headrace.errors import Code, HeadraceError
from headrace.storage.ledger.modes import Availability

LOST = HeadraceError(Code.UNAVAILABLE, "the ledger did not answer")


def test_the_time_in_which_a_server_was_silent_counts_as_waited_for() -> None:
    waited_for = Availability("there", 30.0, lambda: False)
    waited_for.was_silent(time.monotonic() - 25.0)
    waited_for.fails(LOST)
    assert not waited_for.pause(0, 10.0), "another try that takes as long would end too late"
    assert waited_for.pause(0, 0.0)
    waited_for.answers()
    waited_for.fails(LOST)
    assert waited_for.pause(0, 10.0), "it has answered in between"
    waited_for.close()
