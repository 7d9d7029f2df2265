"""The service without a network: time limits, failing models, tokens, batches."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from psco.classifier import FewShotClassifier
from psco.classifier.model import Prediction
from psco.cli import app
from psco.cli.serve import choose_token
from psco.errors import InputError, PscoError
from psco.recipes.recipe import ImageSettings
from psco.server.serve.app import Service
from psco.server.serve.batching import MOST_PICTURES, Batcher
from psco.server.serve.bodies import ServeLimits
from psco.server.serve.model import TorchClassifier


class Brightness:
    """A model of two classes that counts its batches, and waits for a signal if there is one."""

    classes = ("dark", "light")

    def __init__(self, error=None, signal=None):
        self.image = ImageSettings(size=8, source_size=8)
        self.sizes, self.error, self.signal = [], error, signal

    def predict(self, images):
        if self.signal is not None:
            self.signal.wait(30)
        if self.error is not None:
            raise self.error
        self.sizes.append(len(images))
        light = images.mean(axis=(1, 2, 3)) / 255
        chances = np.stack([1 - light, light], axis=1)
        labels = np.array(self.classes)[chances.argmax(axis=1)]
        return Prediction(labels, chances, np.zeros(len(images), dtype=bool))


def pictures(*levels):
    return np.stack([np.full((8, 8, 1), level, dtype=np.uint8) for level in levels])


def post(service, chunks, kind="image/png", pause=0.0):
    """Send a request in chunks; return the status and the JSON of the answer."""
    sent = []

    async def run():
        remaining = list(chunks)

        async def receive():
            await asyncio.sleep(pause)
            body = remaining.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(remaining)}

        async def send(message):
            sent.append(message)

        headers = [(b"content-type", kind.encode())]
        scope = {"type": "http", "method": "POST", "path": "/classify", "headers": headers}
        scope |= {"query_string": b"", "root_path": "", "http_version": "1.1"}
        await service.app()(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_a_body_that_comes_too_slowly_is_refused():
    service = Service(Brightness(), ServeLimits(seconds=0.05))
    status, answer = post(service, [b"x"] * 100, pause=0.01)
    assert (status, answer) == (408, {"error": "the body took longer than 0.05 seconds"})


def test_bodies_that_wait_in_memory_are_limited_and_forgotten_after_the_answer():
    service = Service(Brightness(), ServeLimits(waiting_bytes=100))
    assert post(service, [bytes(60), bytes(60)])[0] == 503
    for _ in range(3):  # the bytes of refused requests count no more
        assert post(service, [bytes(60)])[0] == 422


def run_batches(model, *batches):
    """Classify batches at the same time; return the results, or the errors."""

    async def run():
        batcher = Batcher(model)
        await batcher.start()
        tasks = [asyncio.create_task(batcher.predict(batch)) for batch in batches]
        await asyncio.sleep(0.05)
        if model.signal is not None:
            model.signal.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.stop()
        return results

    return asyncio.run(run())


def test_requests_that_arrive_while_the_model_runs_are_one_batch():
    model = Brightness(signal=threading.Event())
    results = run_batches(model, pictures(0), pictures(255, 10), pictures(200), pictures(3))
    assert sum(model.sizes) == 5
    assert len(model.sizes) <= 2
    found = [result.labels.tolist() for result in results]
    assert found == [["dark"], ["light", "dark"], ["light"], ["dark"]]


def test_a_batch_is_limited_but_a_large_request_is_not_split():
    model = Brightness(signal=threading.Event())
    large = pictures(*[0] * (MOST_PICTURES + 5))
    run_batches(model, pictures(0), large, pictures(1), *[pictures(0)] * MOST_PICTURES)
    assert sum(model.sizes) == 2 * MOST_PICTURES + 7
    assert MOST_PICTURES + 5 in model.sizes
    assert max(model.sizes) == MOST_PICTURES + 5


def test_an_error_of_the_model_reaches_all_requests_of_its_batch_and_no_others():
    model = Brightness(error=PscoError("the graph is damaged"), signal=threading.Event())
    results = run_batches(model, pictures(0), pictures(1))
    assert [str(result) for result in results] == ["the graph is damaged"] * 2


def test_a_transductive_classifier_is_not_served(served_classifier, tmp_path):
    clf = FewShotClassifier(served_classifier.network, rule="transductive")
    clf.fit(np.zeros((2, 24, 24, 1), dtype=np.uint8), ["a", "b"])
    with pytest.raises(InputError, match="those of different people must not meet"):
        TorchClassifier(clf)


@pytest.mark.parametrize(
    ("host", "given", "no_token", "has_token"),
    [
        ("127.0.0.1", None, False, False),
        ("::1", None, False, False),
        ("localhost", None, False, False),
        ("127.0.0.1", "auto", False, True),
        ("0.0.0.0", None, False, True),
        ("192.168.0.7", None, False, True),
        ("0.0.0.0", None, True, False),
    ],
)
def test_a_token_is_required_where_other_machines_can_ask(host, given, no_token, has_token):
    token = choose_token(host, given, no_token)
    assert (token is not None) == has_token
    assert token is None or len(token) >= 32
    assert choose_token(host, "mine", False) == "mine"


def run(*words):
    return CliRunner().invoke(app, ["serve", *map(str, words)])


def test_what_cannot_be_served_is_an_error_of_one_line(tmp_path, served_classifier):
    done = run(tmp_path / "none.psco")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    served_classifier.save(tmp_path / "mine.psco")
    done = run(tmp_path / "mine.psco", "--host", "203.0.113.7")
    assert done.exit_code == 2
    assert "cannot listen on '203.0.113.7'" in done.stderr
    done = run(tmp_path / "mine.psco", "--token", "x", "--no-token")
    assert "exclude each other" in done.stderr
