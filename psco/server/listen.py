"""Listening on a port, and running an application there until Ctrl-C."""

from __future__ import annotations

import socket
from collections.abc import Callable

from psco.errors import InputError, import_optional
from psco.server.guard import LOOPBACK, App


def listen(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """Return a socket that listens; port 0 chooses a free one.

    Raises
    ------
    InputError
        If the address is not one of this machine, or the port is in use.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host!r}, port {port}: {reason}; choose another with --port"
        ) from None
    return listening


def address(listening: socket.socket, token: str | None = None) -> str:
    """Return the address to open in a browser, with the token."""
    host, port = listening.getsockname()[:2]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    return place if token is None else f"{place}?token={token}"


def run_app(
    app: App,
    listening: socket.socket,
    on_ready: Callable[[], None] | None = None,
    connections: int | None = None,
) -> None:
    """Serve an ASGI application until the process is interrupted.

    Parameters
    ----------
    app
        Usually within a `Guard`.
    listening
        From `listen`. Requests are accepted from now on and answered once the server runs.
    on_ready
        Called before the server starts, such as to print the address or open a browser.
    connections
        Most connections at once; further ones get status 503. None for any number.

    Raises
    ------
    InputError
        If uvicorn is not installed.
    """
    uvicorn = import_optional("uvicorn", "app")
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=connections,
    )
    if on_ready is not None:
        on_ready()
    uvicorn.Server(config).run(sockets=[listening])
