"""A browser with the page of ``handwriting``, skipped where there is none."""

from __future__ import annotations

import pytest

import psco
from psco.export.page import write_page


@pytest.fixture(scope="session")
def page_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("draw") / "draw.html"
    write_page(psco.load("handwriting"), path)
    return path


@pytest.fixture
def open_page(chromium, page_file):
    """Return a function that opens the page from its file; errors and requests fail the test."""
    contexts, errors, requests = [], [], []

    def open_it(file=page_file, **options):
        context = chromium.new_context(viewport={"width": 1300, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and errors.append(message.text))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert sum(url.startswith("file:") for url in requests) == len(contexts)
