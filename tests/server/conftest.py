"""Folders of pictures, sessions, real servers and a real browser for the page of psco label."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvicorn
from PIL import Image

WAYS, COPIES = 6, 8


def write_pictures(folder, few_glyphs):
    """Write 6 classes of 8 pictures: shifted, noisy copies of one glyph; return the truth."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    truth = {}
    order = rng.permutation(WAYS * COPIES)
    for place, number in enumerate(order.tolist()):
        drawing = few_glyphs.images[20 * 5 * (number // COPIES), ..., 0].astype(float)
        shifted = np.roll(drawing, rng.integers(-1, 2, size=2), axis=(0, 1))
        noisy = (shifted + rng.normal(0, 8, shifted.shape)).clip(0, 255).astype(np.uint8)
        name = f"drawing-{place:02}.png"
        Image.fromarray(noisy).save(folder / name)
        truth[name] = "abcdef"[number // COPIES]
    return truth


@pytest.fixture
def folder(tmp_path, few_glyphs):
    """Return a folder of 48 pictures, and the class of each by its name."""
    truth = write_pictures(tmp_path / "pictures", few_glyphs)
    return tmp_path / "pictures", truth


class Client:
    """A program or a page that talks to the server with the token, one request at a time."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self.place, self.token = parts.netloc, parts.query.removeprefix("token=")

    def ask(self, path, body=None, **headers):
        """Return the status and the content of an answer to /TOKEN/path."""
        return self.raw(f"/{self.token}/{path}", body, **headers)[::2]

    def raw(self, path, body=None, **headers):
        """Return the status, the headers and the content of an answer."""
        connection = http.client.HTTPConnection(self.place, timeout=60)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def json(self, path, body=None):
        """Return the decoded answer; it must be one."""
        status, content = self.ask(path, body)
        assert status == 200, content
        return json.loads(content)

    def state(self, since=-1):
        """Return the state as a dictionary with arrays."""
        status, content = self.ask(f"api/state?since={since}")
        assert status == 200, content
        return read_frame(content)

    def act(self, **change):
        """Make a change; return the status and the state or the error."""
        status, content = self.ask("api/act", json.dumps(change))
        return status, read_frame(content) if status == 200 else json.loads(content)["error"]


def read_frame(content: bytes) -> dict:
    """Decode a state as the page does."""
    length = int.from_bytes(content[:4], "little")
    state = json.loads(content[4 : 4 + length])
    offset, count = 4 + length, state["pictures"]
    columns = {"labels": "<i2", "predicted": "<i2", "chance": "u1", "flags": "u1"}
    for name, kind in columns.items():
        state[name] = np.frombuffer(content, kind, count, offset)
        offset += state[name].nbytes
    assert offset == len(content)
    return state


@pytest.fixture
def serve(raw_pixels):
    """Return a function that serves a folder from this process; gives a client and the session."""
    from psco.labelling import Labelling
    from psco.server.guard import Guard
    from psco.server.labelling.desk import Desk
    from psco.server.labelling.exports import Exports
    from psco.server.labelling.routes import label_app
    from psco.server.labelling.thumbnails import Thumbnails
    from psco.server.listen import address, listen

    with ExitStack() as stack:

        def start(folder: Path) -> tuple[Client, Labelling]:
            session = stack.enter_context(Labelling(raw_pixels, folder))
            desk, exports = Desk(session), Exports(session, folder.with_name("out"))
            thumbnails = Thumbnails(folder, session.names, session.session / "thumbnails")
            app = Guard(label_app(desk, exports, thumbnails), "secret")
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
            listening = stack.enter_context(listen())
            thread = threading.Thread(target=server.run, args=([listening],))
            thread.start()
            stack.callback(thread.join)
            stack.callback(setattr, server, "should_exit", True)
            desk.start()
            client = Client(address(listening, "secret"))
            while not client.json("api/progress")["ready"]:
                assert not client.json("api/progress")["error"]
            return client, session

        yield start


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory, few_glyphs):
    """Return the run folder of the baseline without a network; the pictures need no more."""
    import psco

    out = tmp_path_factory.mktemp("runs") / "pixels"
    psco.pretrain(few_glyphs.images, out=out, recipe="glyphs", overrides=["method.name=pixels"])
    return out


@pytest.fixture
def label_program():
    """Return a function that runs ``psco label`` in a process of its own and returns its page."""
    started = []

    def run(*words: object) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-m", "psco", "label", *map(str, words), "--no-browser"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        started.append(process)
        line = process.stdout.readline()
        address = re.search(r"http://\S+", line)
        assert address, line
        return process, address[0]

    yield run
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def new_page(chromium):
    """Return a function that opens an address; the page may log no error and ask nobody else."""
    contexts, problems = [], []

    def open_page(address: str, width: int = 1300, ready: bool = True, **options: object):
        context = chromium.new_context(viewport={"width": width, "height": 850}, **options)
        contexts.append(context)
        page = context.new_page()
        place = urlsplit(address).netloc
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                urlsplit(request.url).netloc == place
                or request.url.startswith("blob:")
                or problems.append(request.url)
            ),
        )
        page.goto(address)
        if ready:
            page.wait_for_selector("#tabs button", timeout=120_000)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []
