"""Sending events never makes anybody wait: a slow or failing address loses events, and says so."""

from __future__ import annotations

import json
import logging
import threading

import pytest

from headrace.errors import Code, HeadraceError
from headrace.lifecycle.facts.openlineage import OpenLineageSending, sender


def test_events_are_sent_in_order_and_what_waits_is_sent_at_the_end():
    sent = []
    sending = OpenLineageSending(sent.append)
    for number in range(100):
        sending.put(lambda number=number: number)
    sending.close()
    assert sent == list(range(100))
    assert (sending.sent, sending.dropped) == (100, 0)


def test_events_that_do_not_fit_are_dropped_and_counted(caplog):
    begun, go = threading.Event(), threading.Event()

    def send(_event):
        begun.set()
        assert go.wait(60)

    sending = OpenLineageSending(send, most=2)
    with caplog.at_level(logging.WARNING):
        sending.put(lambda: 0)
        assert begun.wait(60)
        for number in range(5):
            sending.put(lambda number=number: number)
        assert sending.dropped == 3
        go.set()
        sending.close()
    assert sending.sent == 3
    assert (
        caplog.records[0]
        .getMessage()
        .startswith("events of OpenLineage are dropped: more of them wait")
    )


def test_an_event_that_cannot_be_made_or_sent_is_dropped_and_the_next_is_sent(caplog):
    sent = []

    def send(event):
        if event == "refused":
            raise ConnectionError(event)
        sent.append(event)

    sending = OpenLineageSending(send)
    with caplog.at_level(logging.WARNING):
        sending.put(lambda: 1 // 0)
        sending.put(lambda: "refused")
        sending.put(lambda: "sent")
        sending.close()
    assert sent == ["sent"]
    assert (sending.sent, sending.dropped) == (1, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "events of OpenLineage are dropped: integer division or modulo by zero",
        "events of OpenLineage are sent again; 2 were dropped",
    ]


def test_what_is_running_is_sent_at_intervals():
    several = threading.Event()
    sent = []

    def send(event):
        sent.append(event)
        if len(sent) == 4:
            several.set()

    sending = OpenLineageSending(send, lambda: [lambda: "a", lambda: "b"], every_seconds=0.01)
    assert several.wait(60)
    sending.close()
    assert sent[:4] == ["a", "b", "a", "b"]


def test_a_file_has_an_event_in_each_line(tmp_path):
    send = sender(str(tmp_path / "events.json"))
    send({"eventType": "START"})
    send({"eventType": "COMPLETE"})
    lines = (tmp_path / "events.json").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]


def test_an_address_that_cannot_be_used_is_refused():
    with pytest.raises(HeadraceError) as refused:
        sender("http://[")
    assert refused.value.code is Code.INVALID
