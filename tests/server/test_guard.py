"""Who may call: this machine, under the server's own names, and no other site's page."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.address import ListenAddress, Transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from served import Client


@pytest.mark.parametrize("text", ["0.0.0.0:1", "192.168.1.2:80", "example.org:80", "[::]:80"])
def test_an_address_that_others_could_reach_needs_tls(text: str):
    with pytest.raises(HeadraceError, match="without TLS") as raised:
        Transport().require_complete(ListenAddress.of(text))
    assert raised.value.code is Code.UNSUPPORTED


@pytest.mark.parametrize(
    ("transport", "wrong"),
    [
        (Transport(certificate=Path("x")), "a certificate and its key"),
        (Transport(Path("no.pem"), Path("no.key")), "cannot be used"),
        (Transport(host_names=("a b",)), "not the name of a host"),
        (Transport(host_names=("http://a",)), "not the name of a host"),
        (Transport(plain=True), "needs a name"),
    ],
)
def test_a_transport_that_lacks_something_is_refused(transport: Transport, wrong: str):
    with pytest.raises(HeadraceError, match=wrong):
        transport.require_complete(ListenAddress.of("0.0.0.0:80"))


def test_the_names_of_a_server_are_those_of_its_address_and_those_given():
    names = Transport(host_names=("DB.example.com", "db:81"), plain=True).names(
        ListenAddress.of("10.0.0.1:80")
    )
    assert names.hosts == {"10.0.0.1:80", "db.example.com", "db.example.com:80", "db:81"}
    assert "https://db.example.com" in names.origins
    assert "http://10.0.0.1:80" in names.origins
    assert Transport().names(ListenAddress.of("127.0.0.1:80")).origins == {
        "http://127.0.0.1:80",
        "http://localhost:80",
        "http://[::1]:80",
    }


@pytest.mark.parametrize("text", ["", "127.0.0.1", "127.0.0.1:70000", ":80", "[::1]", "a b:x"])
def test_text_that_is_no_address_is_refused(text: str):
    with pytest.raises(HeadraceError) as raised:
        ListenAddress.of(text)
    assert raised.value.code is Code.INVALID


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:8088", "http://127.0.0.1:8088"),
        ("LOCALHOST:1", "http://localhost:1"),
        ("[::1]:9", "http://[::1]:9"),
        ("127.0.0.9:9", "http://127.0.0.9:9"),
    ],
)
def test_a_loopback_address_is_taken(text: str, url: str):
    assert Transport().url(ListenAddress.of(text)) == url


def test_a_port_that_is_taken_is_a_conflict():
    first = ListenAddress.of("127.0.0.1:0").bound()
    with first, pytest.raises(HeadraceError) as raised:
        ListenAddress("127.0.0.1", first.getsockname()[1]).bound()
    assert raised.value.code is Code.CONFLICT


@pytest.mark.parametrize("opened", [ListenAddress.bound, lambda address: address.shared(1)[0]])
def test_connections_that_a_server_has_left_do_not_keep_its_address(
    opened: Callable[[ListenAddress], socket.socket],
):
    first = opened(ListenAddress.of("127.0.0.1:0"))
    address = ListenAddress("127.0.0.1", first.getsockname()[1])
    with first, socket.create_connection((address.host, address.port)) as client:
        accepted, _ = first.accept()
        accepted.close()  # as by the end of the process: the client has not closed its side yet
        assert client.recv(1) == b""
        first.close()
        address.bound().close()
        opened(address).close()


def test_small_answers_are_sent_at_once():
    with ListenAddress.of("127.0.0.1:0").bound() as found:
        assert found.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:{port}"}, 200),
        ({"Host": "[::1]:{port}"}, 200),
        ({"Host": "LocalHost:{port}"}, 200),
        ({"Host": "evil.example:{port}"}, 403),
        ({"Host": "localhost.evil.example:{port}"}, 403),
        ({"Host": "127.0.0.1"}, 403),
        ({"Host": "127.0.0.1:1"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ],
)
def test_requests_that_another_site_causes_are_refused(
    client: Client, headers: dict[str, str], status: int
):
    given = {name: value.format(port=client.port) for name, value in headers.items()}
    assert client.ask("GET", "/healthz", headers=given).status == status
    found = client.ask(
        "POST",
        "/v1/sql",
        json.dumps({"sql": "SHOW PROPERTIES"}),
        {"Content-Type": "application/json", **given},
    )
    assert found.status == status


@pytest.mark.parametrize("path", ["/", "/console/app.js"])
def test_a_link_from_another_site_may_lead_to_the_console_and_nowhere_else(
    client: Client, path: str
):
    visit = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    assert client.ask("GET", path, headers=visit).status == 200
    assert client.ask("GET", "/v1/catalog", headers=visit).status == 403
    assert client.ask("POST", path, headers=visit).status == 403
    for name in ("Sec-Fetch-Mode", "Sec-Fetch-Dest"):
        embedded = {**visit, name: {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "iframe"}[name]}
        assert client.ask("GET", path, headers=embedded).status == 403
