"""``make services`` starts what can be had."""

from contextlib import ExitStack, nullcontext

from servers.__main__ import start
from servers.machine import Unavailable


def test_a_server_that_cannot_be_started_is_named_and_the_others_start(capsys):
    def missing():
        raise Unavailable("no binary")

    def broken():
        raise OSError("port 9092 is taken")

    services = {"A": missing, "B": broken, "C": lambda: nullcontext("C is at 1.2.3.4")}
    with ExitStack() as running:
        assert start(services, running) == 1
    shown = capsys.readouterr()
    assert shown.out == "C is at 1.2.3.4\n"
    assert "A cannot be had here: no binary" in shown.err
    assert "B could not be started" in shown.err
    assert "port 9092 is taken" in shown.err
