"""The page of psco label in a real browser, used as a person would."""

from __future__ import annotations

import csv
import os
import signal

import numpy as np
import pytest
from PIL import Image


@pytest.fixture(params=["glyphs", "omniglot"])
def pool(request, tmp_path, folder, run_folder):
    """Return a model, a folder of pictures, and the class of each picture by its name."""
    if request.param == "glyphs":
        return run_folder, *folder
    if not os.environ.get("PSCO_DATA"):
        pytest.skip("needs PSCO_DATA with Omniglot")
    from psco.data.sets.benchmarks import load_benchmark

    test, rng = load_benchmark("omniglot", "test", None, None), np.random.default_rng(3)
    chosen = rng.choice(len(test.classes), 20, replace=False)
    place, truth = tmp_path / "omniglot", {}
    place.mkdir()
    numbers = np.flatnonzero(np.isin(test.labels, chosen))
    for rank, number in enumerate(rng.permutation(numbers).tolist()):
        name = f"{rank:03}.png"
        Image.fromarray(test.images[number][..., 0]).save(place / name)
        truth[name] = f"class {np.flatnonzero(chosen == test.labels[number])[0]}"
    return "handwriting", place, truth


def current(page):
    """Return the name of the picture that the page asks about."""
    return page.get_attribute(".label > .stage img", "alt")


def label_current(page, name):
    """Type a class for the picture in question and wait for the next one."""
    before = current(page)
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.wait_for_function(
        "before => document.querySelector('.label > .stage img')?.alt !== before", arg=before
    )


def open_view(page, name):
    page.click(f"#tabs button:has-text('{name}')")
    page.wait_for_selector(f"main.view-{name.lower()}")


def settle(page):
    """Wait until the server has acknowledged all changes of the page."""
    page.evaluate("import('./page/state.js').then((state) => state.settled())")


def labelled(page):
    """Return how many pictures have a label, as the page says."""
    settle(page)
    return int(page.inner_text("#summary .progress").split(" ")[0])


def test_from_a_folder_to_labels_and_over_a_killed_server(pool, label_program, new_page):
    model, folder, truth = pool
    process, address = label_program(model, folder)
    page = new_page(address)
    page.wait_for_selector(".label > .stage img")
    assert "none labelled yet" in page.inner_text(".lead")
    for _ in range(20):
        label_current(page, truth[current(page)])
    assert labelled(page) == 20
    predicted = "() => [...document.querySelectorAll('.tile .name')].map((e) => e.textContent)"
    open_view(page, "Pictures")
    page.wait_for_function("() => document.querySelectorAll('.tile .name').length > 20")
    assert all(page.evaluate(predicted))

    open_view(page, "Confirm")
    page.click(".confirm section button.main >> nth=0")
    page.wait_for_function("() => document.querySelectorAll('.meter i')[1].offsetWidth > 0")
    after = labelled(page)
    assert after > 20
    page.keyboard.press("Control+z")
    page.wait_for_function("() => document.querySelectorAll('.meter i')[1].offsetWidth === 0")
    assert labelled(page) == 20
    page.keyboard.press("Control+Shift+z")
    page.wait_for_function("() => document.querySelectorAll('.meter i')[1].offsetWidth > 0")
    settle(page)

    process.send_signal(signal.SIGKILL)
    process.wait()
    page.wait_for_selector("body.offline", timeout=10_000)
    _, address = label_program(model, folder)
    page = new_page(address)
    assert labelled(page) == after

    open_view(page, "Finish")
    page.click("text=Write labels.csv")
    written = page.inner_text(".written li")
    path = folder.with_name(f"{folder.name}-labelled") / "labels.csv"
    assert str(path) in written
    with path.open(newline="") as file:
        rows = {row["path"].rpartition("/")[2]: row["label"] for row in csv.DictReader(file)}
    assert np.mean([rows.get(name) == label for name, label in truth.items()]) > 0.9


def test_a_frame_over_many_a_key_and_undo(serve, folder, new_page):
    client, session = serve(folder[0])
    state = client.state()
    client.act(revision=state["revision"], do="label", numbers=[40], name="cat")
    page = new_page(f"http://{client.place}/?token={client.token}")
    open_view(page, "Pictures")
    page.wait_for_selector(".tile >> nth=10")
    first, last = (page.locator(".tile").nth(n).bounding_box() for n in (0, 9))
    page.mouse.move(first["x"] + 5, first["y"] + 5)
    page.mouse.down()
    page.mouse.move(last["x"] + 30, last["y"] + 30, steps=4)
    page.mouse.up()
    assert page.inner_text(".selection span") == "6 selected"
    page.keyboard.press("1")
    settle(page)
    assert [label.name for label in session.given.values()] == ["cat"] * 7
    page.click("#undo")
    settle(page)
    assert list(session.given) == [40]
    page.click(".tile >> nth=3")  # enlarges
    page.wait_for_selector("#zoom[open] img")
    page.keyboard.press("Delete")
    page.keyboard.press("Escape")
    settle(page)
    assert session.given[3].name.endswith("not usable")


def test_a_whole_group_at_once_without_those_clicked_away(serve, folder, new_page):
    client, session = serve(folder[0])
    page = new_page(f"http://{client.place}/?token={client.token}")
    page.wait_for_selector(".alike .mini >> nth=2")
    shown = page.locator(".alike .mini").count()
    page.click(".alike .switch")
    page.click(".alike .mini >> nth=0")
    away = page.get_attribute(".alike .mini.left img", "title")
    label_current(page, "many")
    settle(page)
    names = {session.names[number] for number in session.given}
    assert len(names) == shown  # the picture itself and all others but one
    assert away not in names


def test_classes_are_renamed_and_merged(serve, folder, new_page):
    client, session = serve(folder[0])
    for number, name in enumerate(["cat", "dog", "cta"]):
        client.act(revision=99, do="label", numbers=[number], name=name)
    page = new_page(f"http://{client.place}/?token={client.token}")
    page.hover(".class:has-text('dog')")
    page.click("[aria-label='Change dog']")
    page.fill("#asking input", "wolf")
    page.keyboard.press("Enter")
    page.wait_for_selector(".class:has-text('wolf')")
    page.hover(".class:has-text('cta')")
    page.click("[aria-label='Change cta']")
    page.fill("#asking input", "cat")
    page.keyboard.press("Enter")
    page.wait_for_selector(".class:has-text('cta')", state="detached")
    assert [label.name for label in session.given.values()] == ["cat", "wolf", "cat"]


def test_a_second_tab_shows_labels_of_the_first_and_a_conflict_loses_nothing(
    serve, folder, new_page
):
    client, session = serve(folder[0])
    address = f"http://{client.place}/?token={client.token}"
    first, second = new_page(address), new_page(address)
    number = session.names.index(current(second))
    second.route("**/api/state*", lambda route: route.abort())  # it learns nothing of the others
    label_current(first, "mine")
    settle(first)
    label_current(second, "theirs")
    second.wait_for_selector("#notes.error:has-text('another page')")
    assert session.given[number].name == "mine"
    second.unroute("**/api/state*")
    second.wait_for_selector(".class:has-text('mine')")
    assert second.locator(".class:has-text('theirs')").count() == 0


def test_names_with_markup_stay_names(serve, folder, new_page):
    evil = "<img src=x onerror=alert(1)>"
    (folder[0] / f"{evil}.png").write_bytes((folder[0] / "drawing-00.png").read_bytes())
    client, _ = serve(folder[0])
    for number, name in enumerate([evil[:-1] + " >", "<script>alert(2)<", "b"]):
        assert client.act(revision=99, do="label", numbers=[number], name=name)[0] == 200
    page = new_page(f"http://{client.place}/?token={client.token}")
    for view in ("Label", "Confirm", "Pictures", "Check", "Map", "Finish"):
        open_view(page, view)
        page.wait_for_timeout(100)
        assert page.locator("img[src='x'], main script, #panel script").count() == 0
    assert page.locator(".class .name").nth(1).inner_text() == "<script>alert(2)<"


def test_pictures_like_a_dropped_one_and_a_frame_on_the_map(serve, folder, new_page):
    client, session = serve(folder[0])
    page = new_page(f"http://{client.place}/?token={client.token}")
    content = list((folder[0] / session.names[7]).read_bytes())
    page.evaluate(
        """(bytes) => {
          const files = new DataTransfer();
          files.items.add(new File([new Uint8Array(bytes)], "mine.png"));
          window.dispatchEvent(new DragEvent("drop", { dataTransfer: files }));
        }""",
        content,
    )
    page.wait_for_selector("main.view-pictures .tile")
    assert page.get_attribute(".tile", "title") == session.names[7]
    open_view(page, "Map")
    page.wait_for_selector(".plane.drawn")
    box = page.locator(".plane").bounding_box()
    page.mouse.move(box["x"] + 9, box["y"] + 9)  # the corners are round
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 9, box["y"] + box["height"] - 9, steps=3)
    page.mouse.up()
    assert page.inner_text(".map .selection span") == "48 selected"


def test_thousands_of_pictures_need_few_elements(serve, folder, new_page):
    source = (folder[0] / "drawing-00.png").read_bytes()
    for number in range(2000):
        (folder[0] / f"more-{number:04}.png").write_bytes(source)
    client, _ = serve(folder[0])
    page = new_page(f"http://{client.place}/?token={client.token}")
    open_view(page, "Pictures")
    page.wait_for_selector(".tile")
    page.evaluate("document.querySelector('main').scrollTop = 1e6")
    page.wait_for_selector("[title='more-1999.png']")
    assert page.locator(".tile").count() < 150


def test_broken_pictures_say_why(serve, folder, new_page):
    (folder[0] / "a-broken.png").write_bytes(b"no picture")
    client, _ = serve(folder[0])
    page = new_page(f"http://{client.place}/?token={client.token}")
    open_view(page, "Pictures")
    page.wait_for_selector(".tile.broken")
    assert "PNG" in page.inner_text(".tile.broken .why")


def test_a_phone_needs_no_sideways_scrolling(serve, folder, new_page):
    client, _ = serve(folder[0])
    for number, name in enumerate(["a class with a rather long name", "b", "c", "d", "e"]):
        client.act(revision=99, do="label", numbers=[number], name=name)
    page = new_page(f"http://{client.place}/?token={client.token}", width=390, has_touch=True)
    wide = (
        "document.documentElement.scrollWidth > innerWidth || view.scrollWidth > view.clientWidth"
    )
    for view in ("Label", "Confirm", "Pictures", "Check", "Map", "Finish"):
        open_view(page, view)
        page.wait_for_timeout(200)
        assert not page.evaluate(f"(view => {wide})(document.querySelector('main'))"), view
