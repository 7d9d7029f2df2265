"""Who may talk to a server on this machine: checks of every request, before any of our code.

A page from the Internet that is open in the same browser can send requests to 127.0.0.1. Such a
page does not know the token. With a trick of the name service (DNS rebinding) it can even read the
answers, but its requests then carry its own name in the Host header.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = "127.0.0.1"
# Nothing is loaded from elsewhere, no page may frame ours, and no address (it holds the token) is
# passed on.
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def new_token() -> str:
    """Return a token that cannot be guessed, of letters, digits, ``-`` and ``_``."""
    return secrets.token_urlsafe(24)


class Guard:
    """An ASGI application that passes on only requests from those who may send them.

    The token is the first part of the path, ``/TOKEN/...``, which is removed before the request is
    passed on; so every relative link of a page carries it. A query ``?token=TOKEN`` and a header
    ``Authorization: Bearer TOKEN`` are accepted too. ``/?token=TOKEN`` leads to ``/TOKEN/``.

    Parameters
    ----------
    app
        The application behind it.
    token
        None to require none.
    host
        The address that the server listens on. With a loopback address, the Host header must name
        a loopback address or ``localhost``; otherwise an address in digits or this host.
    """

    def __init__(self, app: App, token: str | None, host: str = LOOPBACK) -> None:
        self._app = app
        self._token = token
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: pass it on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, _with_headers(send))
        else:  # a websocket, which we do not use
            await send({"type": "websocket.close", "code": 1008})

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        host = headers.get("host", b"").decode("latin-1")
        origin = headers.get("origin", b"").decode("latin-1")
        if not is_allowed_host(host, self._host):
            await _refuse(send, 421, "this server has another name")
        elif origin and urlsplit(origin).netloc != host:
            await _refuse(send, 403, "requests from other pages are refused")
        elif self._token is None:
            await self._app(scope, receive, send)
        else:
            await self._check_token(self._token, scope, headers, receive, send)

    async def _check_token(
        self, token: str, scope: Scope, headers: dict[str, bytes], receive: Receive, send: Send
    ) -> None:
        first, slash, rest = scope["path"].removeprefix("/").partition("/")
        if _same(first, token) and slash:
            inner = {**scope, "path": f"/{rest}", "raw_path": None, "root_path": ""}
            await self._app(inner, receive, send)
            return
        query = parse_qs(scope["query_string"].decode("latin-1"))
        words = headers.get("authorization", b"").decode("latin-1").split(" ")
        given = [*query.get("token", []), *(words[1:] if words[0] == "Bearer" else [])]
        if not any(_same(each, token) for each in given):
            await _refuse(send, 403, "the token is missing or wrong; use the address psco printed")
        elif scope["path"] == "/" and scope["method"] == "GET":
            location = [(b"location", f"/{token}/".encode())]
            await send({"type": "http.response.start", "status": 303, "headers": location})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app(scope, receive, send)


def is_allowed_host(header: str, host: str) -> bool:
    """Whether a Host header is one that a server on ``host`` can have.

    An attack by DNS rebinding needs a name that the attacker owns, so addresses in digits are safe.
    """
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or (name == host.lower() and name):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether a host can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


async def _refuse(send: Send, status: int, text: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})


def _with_headers(send: Send) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message["headers"]}
            ours = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
            more = [pair for pair in ours if pair[0] not in present]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return wrapped
