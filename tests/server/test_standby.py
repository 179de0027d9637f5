"""What a server answers while it waits for the end of another one."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import contextmanager

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.address import ListenAddress, Transport
from headrace.interfaces.server.standby import StandbyServer
from headrace.tools.cli import serve


def asked(port: int, path: str, method: str = "GET") -> tuple[int, dict[str, str], object]:
    deadline = time.monotonic() + 30
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), json.loads(answer.read())
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        finally:
            connection.close()


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.INVALID])
def test_a_standby_stays_while_what_it_opens_does_not_answer(
    code: Code, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serve, "_AGAIN_SECONDS", 0.0)
    errors = [HeadraceError(code, "the store did not answer") for _ in range(3)]
    waited_for, closed = [], []

    class Server:
        def waits_for(self, error: HeadraceError) -> None:
            waited_for.append(error)

    @contextmanager
    def to_open():
        if errors:
            raise errors.pop()
        yield "database"
        closed.append(True)

    said: list[str] = []
    standby = serve.Standby(Server(), said.append)
    if code is Code.INVALID:
        with pytest.raises(HeadraceError), standby.opened(to_open):
            pass
        return
    with standby.opened(to_open) as found:
        assert found == "database"
    assert (len(waited_for), closed) == (3, [True])
    assert said == ["standby: the store did not answer"]


def test_a_standby_is_alive_and_refers_to_the_writer_until_it_takes_over():
    with ListenAddress.of("127.0.0.1:0").bound() as bound:
        port = bound.getsockname()[1]
        with StandbyServer(bound, Transport()) as standby:
            assert asked(port, "/healthz")[::2] == (200, {"status": "standby"})
            for method, path in (("GET", "/readyz"), ("POST", "/v1/sql"), ("GET", "/")):
                status, headers, answer = asked(port, path, method)
                assert (status, headers["retry-after"]) == (503, "1")
                assert answer["error"]["code"] == "unavailable"
            standby.waits_for(HeadraceError(Code.CONFLICT, "it is open in process 7"))
            assert asked(port, "/readyz")[2]["error"]["detail"] == "It is open in process 7."
        # Whoever connects now waits for the server that takes the socket.
        waiting = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        waiting.request("GET", "/healthz")
        with StandbyServer(bound, Transport()):
            assert waiting.getresponse().status == 200
        waiting.close()
    with pytest.raises(OSError, match="refused"):
        http.client.HTTPConnection("127.0.0.1", port, timeout=10).connect()
