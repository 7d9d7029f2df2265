"""The page in Chromium: it draws, learns, answers, undoes, saves and opens. See ``open_page``."""

from __future__ import annotations

import base64
import json
import math
import os

import numpy as np
import pytest
from tracing import trace

import psco
from psco.data.sets.glyphs import load_glyphs

SHAPES = {
    "L": [[(0.35, 0.2), (0.35, 0.8), (0.7, 0.8)]],
    "X": [[(0.3, 0.25), (0.7, 0.75)], [(0.7, 0.25), (0.3, 0.75)]],
    "O": [[(0.5 + 0.25 * math.cos(a / 3), 0.5 + 0.3 * math.sin(a / 3)) for a in range(20)]],
}
SCRIBBLE = [[(0.2 + 0.6 * (turn % 2), 0.2 + 0.05 * turn) for turn in range(13)]]


def draw(page, strokes, shift=0.0, size=1.0, steps=3):
    box = page.locator("#pad").bounding_box()

    def place(point):
        x, y = (0.5 + (value - 0.5) * size + shift for value in point)
        return box["x"] + box["width"] * x, box["y"] + box["height"] * y

    for stroke in strokes:
        page.mouse.move(*place(stroke[0]))
        page.mouse.down()
        for point in stroke[1:]:
            page.mouse.move(*place(point), steps=steps)
        page.mouse.up()


def teach(page, strokes, name, **options):
    draw(page, strokes, **options)
    page.fill("#name", name)
    page.press("#name", "Enter")


def label(page):
    return page.evaluate("document.body.dataset.label")


def names(page):
    return page.eval_on_selector_all("#classes .head input", "all => all.map((one) => one.value)")


def drop(page, selector, name, content, kind="application/octet-stream"):
    page.evaluate(
        """([selector, name, kind, content]) => {
          const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([bytes], name, { type: kind }));
          const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
          document.querySelector(selector).dispatchEvent(event);
        }""",
        [selector, name, kind, base64.b64encode(content).decode()],
    )


@pytest.fixture
def taught(open_page):
    page = open_page()
    for name, strokes in SHAPES.items():
        teach(page, strokes, name)
    return page


def test_it_answers_from_the_first_example_on(open_page):
    page = open_page()
    draw(page, SHAPES["L"])
    assert label(page) == ""
    page.fill("#name", "L")
    page.press("#name", "Enter")
    draw(page, SHAPES["L"], 0.02)
    assert label(page) == "L"
    assert "the only class so far" in page.inner_text("#result")
    assert page.locator("#result canvas").count() == 1  # the nearest example


def test_one_example_of_each_class_is_enough_wherever_and_how_large_it_is_drawn(taught):
    for name, strokes in SHAPES.items():
        for shift, size in ((0.0, 0.9), (0.2, 0.4)):
            draw(taught, strokes, shift, size)
            assert label(taught) == name
            taught.keyboard.press("Escape")


def test_the_picture_that_the_network_sees_is_shown(taught):
    pixels = "[...document.querySelector('#seen canvas').getContext('2d')"
    pixels += ".getImageData(0, 0, 28, 28).data]"
    assert taught.evaluate("document.querySelector('#seen canvas').width") == 28
    assert sum(taught.evaluate(pixels)) == 0
    draw(taught, SHAPES["L"])
    grey = np.array(taught.evaluate(pixels)).reshape(28, 28, 4)[..., 0]
    assert grey.min() < 128
    assert grey[:3].min() == 255  # centred, with a margin


def test_what_belongs_to_no_class_is_unknown_and_the_slider_decides(taught):
    draw(taught, SCRIBBLE)
    assert label(taught) == "unknown"
    slider = taught.locator("#threshold")
    start = float(slider.input_value())
    assert 0.1 < start < 0.9  # calibrated
    slider.fill("0")
    assert label(taught) in SHAPES
    taught.click("#calibrate")
    assert float(slider.input_value()) == start
    assert label(taught) == "unknown"
    taught.keyboard.press("Escape")
    draw(taught, SHAPES["X"])
    slider.fill("1")
    assert label(taught) == "unknown"


def test_keys_teach_clear_undo_and_redo(taught):
    draw(taught, SHAPES["X"], 0.02)
    taught.keyboard.press("Enter")  # as predicted
    counts = "[...document.querySelectorAll('.examples')].map((one) => one.children.length)"
    assert taught.evaluate(counts) == [1, 2, 1]
    draw(taught, SHAPES["X"])
    taught.keyboard.press("3")
    assert taught.evaluate(counts) == [1, 2, 2]
    taught.keyboard.press("Control+z")
    assert taught.evaluate(counts) == [1, 2, 1]
    assert label(taught) == "X"  # the drawing is back too
    taught.keyboard.press("Control+z")  # its second stroke
    taught.keyboard.press("Control+Shift+z")
    taught.keyboard.press("Control+Shift+z")
    assert taught.evaluate(counts) == [1, 2, 2]
    taught.keyboard.press("n")
    taught.keyboard.type("n")  # in the field, a letter is a letter
    assert taught.input_value("#name") == "n"


def test_classes_are_renamed_and_removed_and_undo_brings_them_back(taught):
    taught.get_by_label("Name of class X").fill("cross")
    taught.get_by_label("Name of class X").press("Enter")
    assert names(taught) == ["L", "cross", "O"]
    taught.get_by_label("Name of class O").fill("L")
    taught.get_by_label("Name of class O").press("Enter")
    assert "There is a class “L” already" in taught.inner_text("#message")
    assert names(taught) == ["L", "cross", "O"]
    taught.get_by_label("Remove class L").click()
    taught.get_by_label("Remove example 1 of O").click()
    assert names(taught) == ["cross"]
    for _ in range(3):
        taught.click("#undo")
    assert names(taught) == ["L", "X", "O"]


def test_saved_classes_are_opened_again_here_and_in_python(taught, open_page, tmp_path):
    for kind in ("json", "psco"):
        taught.click("#save summary")
        with taught.expect_download() as download:
            taught.click(f"#save-{kind}")
        download.value.save_as(tmp_path / f"classes.{kind}")
        fresh = open_page()
        fresh.set_input_files("#open-file", tmp_path / f"classes.{kind}")
        fresh.wait_for_selector("#classes li")
        assert names(fresh) == list(SHAPES)
        draw(fresh, SHAPES["O"], 0.03)
        assert label(fresh) == "O"
    assert (tmp_path / "classes.json").stat().st_size < 20_000
    assert json.loads((tmp_path / "classes.json").read_text())["format"] == "psco-classes"
    classifier = psco.FewShotClassifier.load(tmp_path / "classes.psco")
    assert classifier.classes_.tolist() == sorted(SHAPES)


def test_damaged_and_foreign_files_are_a_sentence_and_nothing_is_lost(taught):
    draw(taught, SHAPES["L"])
    for name, kind, content in (
        ("x.psco", "", b"\x08\x00\x00\x00\x00\x00\x00\x00nonsense"),
        ("x.json", "application/json", b'{"format": "psco-classes"'),
        ("x.pdf", "application/pdf", b"%PDF-1.7"),
        ("x.png", "image/png", b"\x89PNG\r\n\x1a\nnothing"),
        ("empty.psco", "", b""),
    ):
        drop(taught, "#paper", name, content, kind)
        taught.wait_for_selector(f"#message.problem:has-text('{name}')")
        assert names(taught) == list(SHAPES)
        assert label(taught) == "L"


def test_pictures_are_dropped_on_the_pad_to_classify_and_on_a_class_to_teach(taught, tmp_path):
    draw(taught, SHAPES["O"], 0.01)
    picture = base64.b64decode(
        taught.evaluate("document.querySelector('#pad').toDataURL().split(',')[1]")
    )
    taught.keyboard.press("Escape")
    drop(taught, "#paper", "o.png", picture, "image/png")
    taught.wait_for_selector("body[data-label='O']")
    drop(taught, "#classes li:nth-child(3)", "o.png", picture, "image/png")
    taught.wait_for_selector("#classes li:nth-child(3) .examples button:nth-child(2)")
    assert names(taught) == list(SHAPES)


def test_fingers_draw_on_a_phone_without_scrolling_it_or_sideways_overflow(open_page):
    page = open_page(has_touch=True, is_mobile=True)
    page.set_viewport_size({"width": 390, "height": 844})
    box = page.locator("#pad").bounding_box()
    session = page.context.new_cdp_session(page)
    for kind, at in (("touchStart", 0.3), ("touchMove", 0.5), ("touchMove", 0.7), ("touchEnd", 0)):
        point = {"x": box["x"] + box["width"] * at, "y": box["y"] + box["height"] * at}
        points = [] if kind == "touchEnd" else [point]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    page.fill("#name", "slash")
    page.tap("#teach button")
    page.wait_for_selector("#classes li")
    assert names(page) == ["slash"]
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def accuracy(page, firsts, others):
    """Teach one drawing of each class by its strokes, then classify the others; -> in [0, 1]."""

    def strokes_of(picture):
        return [stroke[::8] + stroke[-1:] for stroke in trace(picture)]

    for name, picture in enumerate(firsts):
        teach(page, strokes_of(picture), str(name), steps=1)
    right = []
    for name, pictures in enumerate(others):
        for picture in pictures:
            draw(page, strokes_of(picture), steps=1)
            right.append(page.locator(".bars span").first.inner_text() == str(name))
            page.keyboard.press("Escape")
    return np.mean(right)


def test_strokes_of_invented_characters_are_told_apart(open_page):
    glyphs = load_glyphs("test")
    chosen = [np.flatnonzero(glyphs.labels == label)[:2] for label in range(0, 40, 10)]
    pictures = np.kron(glyphs.images[np.stack(chosen)][..., 0], np.ones((4, 4)))  # (4, 2, s, s)
    assert accuracy(open_page(), pictures[:, 0], pictures[:, 1:]) >= 0.75


@pytest.mark.skipif("PSCO_DATA" not in os.environ, reason="PSCO_DATA is not set")
def test_strokes_of_real_omniglot_drawings_are_told_apart(open_page):
    images = psco.load_dataset("omniglot", "test", size=105, channels=1)
    chosen = [np.flatnonzero(images.labels == label)[:2] for label in range(0, 300, 60)]
    pictures = images.images[np.stack(chosen)][..., 0]  # (5, 2, 105, 105)
    assert accuracy(open_page(), pictures[:, 0], pictures[:, 1:]) >= 0.8
