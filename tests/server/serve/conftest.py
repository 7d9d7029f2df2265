"""A classifier behind a real server."""

from __future__ import annotations

import http.client
import io
import json
import subprocess
import sys

import pytest
from PIL import Image
from small_models import make_encoder, make_images

from psco.classifier import FewShotClassifier


@pytest.fixture(scope="session")
def served_classifier() -> FewShotClassifier:
    encoder = make_encoder()
    clf = FewShotClassifier(encoder, reject_below=0.4)
    return clf.fit(make_images(encoder, 6), ["a", "b", "c", "a", "b", "c"])


def png(pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0]).save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="session")
def files(served_classifier) -> list[bytes]:
    """Six pictures, as the content of files."""
    return [png(pixels) for pixels in make_images(served_classifier.network, 6)]


@pytest.fixture(scope="session")
def server(served_classifier, tmp_path_factory):
    """Start the program; gives its host and port."""
    path = tmp_path_factory.mktemp("served") / "mine.psco"
    served_classifier.save(path)
    command = [sys.executable, "-m", "psco", "serve", str(path), "--port", "0"]
    limits = ["--max-megabytes", "2", "--max-pictures", "8", "--draw"]
    with subprocess.Popen([*command, *limits], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        assert address.startswith("http://127.0.0.1:"), address
        try:
            yield address.split("/")[2]
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def ask(server):
    """Return a function that sends a request; it returns the status and the JSON of the answer."""

    def send(method, path, body=None, kind=None, **headers):
        connection = http.client.HTTPConnection(server, timeout=60)
        sent = {**({"content-type": kind} if kind else {}), **headers}
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, json.loads(content)

    return send
