"""Requests that a server on this machine answers, and those it refuses."""

from __future__ import annotations

import asyncio

import pytest

from psco.errors import InputError
from psco.server.guard import Guard, is_allowed_host, new_token
from psco.server.listen import address, listen

TOKEN = "a-token"


def ask(path="/", *, host="127.0.0.1:80", token=TOKEN, method="GET", query="", **headers):
    """Send a request through a guard; return the status, the headers and what the app saw."""
    seen, sent = [], []

    async def app(scope, receive, send):
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"secret"})

    async def send(message):
        sent.append(message)

    pairs = [(b"host", host.encode()), *((n.encode(), v.encode()) for n, v in headers.items())]
    scope = {"type": "http", "method": method, "path": path, "headers": pairs}
    scope["query_string"] = query.encode()
    asyncio.run(Guard(app, token)(scope, None, send))
    return sent[0]["status"], dict(sent[0]["headers"]), seen


def test_the_token_opens_every_path_below_it():
    status, _, seen = ask(f"/{TOKEN}/api/state")
    assert (status, seen) == (200, ["/api/state"])


def test_the_printed_address_leads_to_the_page():
    status, headers, seen = ask("/", query=f"token={TOKEN}")
    assert (status, headers[b"location"], seen) == (303, b"/a-token/", [])


def test_a_program_may_send_the_token_in_a_header():
    assert ask("/classify", method="POST", authorization=f"Bearer {TOKEN}")[2] == ["/classify"]


@pytest.mark.parametrize("path", ["/", "/api/state", "/wrong/api/state", "/a-token", "/a-toke/n/"])
@pytest.mark.parametrize("query", ["", "token=", "token=wrong", "nekot=a-token"])
def test_without_the_token_nothing_is_answered(path, query):
    status, _, seen = ask(path, query=query)
    assert (status, seen) == (403, [])


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_another_name_in_the_host_header_is_refused_even_with_the_token(host):
    status, _, seen = ask(f"/{TOKEN}/", host=host)
    assert (status, seen) == (421, [])


def test_a_page_of_another_origin_is_refused_even_with_the_token():
    assert ask(f"/{TOKEN}/", method="POST", origin="http://127.0.0.1:81")[0] == 403
    assert ask(f"/{TOKEN}/", method="POST", origin="null")[0] == 403
    assert ask(f"/{TOKEN}/", method="POST", origin="http://127.0.0.1:80")[0] == 200


def test_without_a_token_the_host_is_still_checked():
    assert ask("/", token=None)[0] == 200
    assert ask("/", token=None, host="evil.example")[0] == 421


def test_answers_and_refusals_allow_nothing_from_elsewhere():
    for path in (f"/{TOKEN}/", "/"):
        headers = ask(path)[1]
        assert b"default-src 'self'" in headers[b"content-security-policy"]
        assert headers[b"referrer-policy"] == b"no-referrer"
        assert headers[b"x-content-type-options"] == b"nosniff"


def test_websockets_are_closed():
    sent = []

    async def send(message):
        sent.append(message["type"])

    asyncio.run(Guard(None, TOKEN)({"type": "websocket"}, None, send))
    assert sent == ["websocket.close"]


@pytest.mark.parametrize(
    ("header", "host", "allowed"),
    [
        ("localhost:8000", "127.0.0.1", True),
        ("[::1]:8000", "127.0.0.1", True),
        ("192.168.0.5:8000", "127.0.0.1", False),
        ("192.168.0.5:8000", "0.0.0.0", True),
        ("lab.example:8000", "0.0.0.0", False),
        ("lab.example:8000", "lab.example", True),
        ("[::1", "127.0.0.1", False),
    ],
)
def test_host_headers_that_a_server_can_have(header, host, allowed):
    assert is_allowed_host(header, host) == allowed


def test_tokens_differ_and_need_no_escaping():
    tokens = {new_token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(set(token) <= set(map(chr, range(33, 127))) - set("/?#%&+") for token in tokens)


def test_a_server_listens_on_the_loopback_address_unless_told():
    with listen() as listening:
        host, port = listening.getsockname()
        assert address(listening, "t") == f"http://127.0.0.1:{port}/?token=t"
        assert host == "127.0.0.1"
        with pytest.raises(InputError, match=f"port {port}.*--port"):
            listen(port=port)
