"""The page of psco serve, in a real browser."""

from __future__ import annotations

import pytest


@pytest.fixture
def browser_page(chromium):
    context = chromium.new_context()
    yield context.new_page()
    context.close()


def test_pictures_chosen_on_the_page_are_classified(
    browser_page, server, files, served_classifier, tmp_path
):
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(files[number])
    (tmp_path / "3.png").write_bytes(b"no picture")
    problems = []
    browser_page.on("pageerror", lambda error: problems.append(str(error)))
    browser_page.on("console", lambda message: problems.append(message.text))
    browser_page.goto(f"http://{server}/")
    browser_page.set_input_files("#files", sorted(tmp_path.iterdir()))
    browser_page.wait_for_selector("#results li:nth-child(4)")
    labels = browser_page.locator("#results .label").all_text_contents()
    expected = served_classifier.predict([tmp_path / f"{number}.png" for number in range(3)])
    assert labels[:3] == expected.tolist()
    assert labels[3].startswith("it is not PNG")
    assert browser_page.text_content("#title") == "mine: 3 classes"
    assert browser_page.text_content("#message") == "3 of 4 classified"
    assert problems == []


def test_the_page_for_drawing_starts_with_the_classes_and_sends_nothing(browser_page, server):
    problems, requests = [], []
    browser_page.on("pageerror", lambda error: problems.append(str(error)))
    browser_page.on("console", lambda message: problems.append(message.text))
    browser_page.goto(f"http://{server}/")
    browser_page.click("text=Draw instead")
    browser_page.wait_for_load_state()
    browser_page.on("request", lambda request: requests.append(request.url))
    browser_page.wait_for_selector("canvas")
    assert browser_page.url.endswith("/draw")
    assert "mine" in browser_page.title()
    assert problems == []
    assert [url for url in requests if url.startswith("http")] == []
