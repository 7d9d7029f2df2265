"""``psco label`` as a function: open a session, embed its pictures, and serve the page."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable
from pathlib import Path

from psco.labelling import Labelling
from psco.progress import Bar
from psco.server.guard import LOOPBACK, Guard, new_token
from psco.server.labelling.desk import Desk
from psco.server.labelling.exports import Exports
from psco.server.labelling.routes import label_app
from psco.server.labelling.thumbnails import Thumbnails
from psco.server.listen import address, listen, run_app


def run_label_page(
    session: Labelling,
    out: Path,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    browser: bool = True,
    on_address: Callable[[str], None] = print,
) -> None:
    """Serve the page of a session until the process is interrupted.

    Parameters
    ----------
    session
        The session; its pictures are embedded while the page is already there.
    out
        Folder for the exports.
    host, port
        Where to listen; port 0 chooses a free one.
    browser
        Open the page in a browser.
    on_address
        Called with the address of the page.

    Raises
    ------
    InputError
        If the port is in use.
    """
    token = new_token()
    thumbnails = Thumbnails(session.folder, session.names, session.session / "thumbnails")
    with listen(host, port) as listening, Bar("embed pictures") as bar:
        desk = Desk(session, lambda done, total: bar.update(done / total, f"{done:,} of {total:,}"))
        place = address(listening, token)

        def announce() -> None:
            on_address(place)
            desk.start()
            if browser:
                webbrowser.open(place)

        app = label_app(desk, Exports(session, out), thumbnails)
        run_app(Guard(app, token, host), listening, announce)
