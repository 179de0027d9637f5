"""Changes over WebSocket: the events of HTTP as messages, refused as requests are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from headrace.interfaces.server.events import messages
from served import Event, Replica

if TYPE_CHECKING:
    from served import Client


def opened(client: Client, path: str, **more: Any):
    return connect(f"ws://127.0.0.1:{client.port}{path}", open_timeout=60, **more)


def test_events_become_messages_without_reading_their_data():
    assert list(messages(b"")) == []
    assert list(messages(b'event: changes\nid: 9~4\ndata: {"a": "x: y"}\n\n')) == [
        '{"event":"changes","id":"9~4","data":{"a": "x: y"}}'
    ]
    two = b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n"
    assert [json.loads(each) for each in messages(two)] == [
        {"event": "a", "id": None, "data": 1},
        {"event": "b", "id": None, "data": 2},
    ]


def test_a_view_is_followed_and_resumed(client: Client):
    client.sql("""
        CREATE TABLE sent (id INT, PRIMARY KEY (id));
        CREATE MATERIALIZED VIEW kept AS SELECT id FROM sent;
        INSERT INTO sent VALUES (1)
    """)
    replica = Replica()

    def take_until(socket: Any, rows: int) -> None:
        while len(replica.rows) != rows:
            found = json.loads(socket.recv(timeout=60))
            replica.take(Event(found["event"], found["id"], found["data"]))

    with opened(client, "/v1/subscribe?view=kept") as socket:
        socket.send("ignored")
        take_until(socket, 1)
        client.sql("INSERT INTO sent VALUES (2)")
        take_until(socket, 2)
    client.sql("INSERT INTO sent VALUES (3)")
    with opened(client, f"/v1/subscribe?view=kept&after={replica.token}") as socket:
        take_until(socket, 3)
        client.sql("DROP VIEW kept")
        last = [json.loads(text) for text in socket][-1]
        assert socket.close_code == 1001
        assert last["data"]["error"]["code"] == "conflict"
    with opened(client, "/v1/status") as socket:
        assert json.loads(socket.recv(timeout=60))["event"] == "status"


@pytest.mark.parametrize(
    ("path", "more", "status", "primary"),
    [
        ("/v1/subscribe?view=nothing", {}, 404, 'view or table "nothing" does not exist'),
        ("/v1/subscribe?view=a&b=1", {}, 400, 'query parameter "b" does not exist'),
        (
            "/v1/subscribe?view=a",
            {"origin": "http://evil.example"},
            403,
            "a request for or from another origin is refused",
        ),
    ],
)
def test_what_is_refused_is_refused_before_the_socket_opens(
    client: Client, path: str, more: Any, status: int, primary: str
):
    with pytest.raises(InvalidStatus) as refused, opened(client, path, **more):
        pass
    response = refused.value.response
    assert (response.status_code, json.loads(response.body)["error"]["primary"]) == (
        status,
        primary,
    )


def test_other_paths_have_no_sockets(client: Client):
    with pytest.raises(InvalidStatus), opened(client, "/v1/catalog"):
        pass
