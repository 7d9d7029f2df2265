"""The server of psco label: states, changes with revisions, pictures by number, and exports."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from PIL import Image

import psco
from psco.server.labelling.exports import Exports

BROKEN = 4


def numbers_of(session, truth, name):
    return [n for n, file in enumerate(session.names) if truth.get(file) == name]


def label_some(client, session, truth, each=2):
    """Label a few pictures of every class; return the state."""
    state = client.state()
    for name in "abcdef":
        numbers = numbers_of(session, truth, name)[:each]
        status, state = client.act(
            revision=state["revision"], do="label", numbers=numbers, name=name
        )
        assert status == 200
    return state


def test_every_label_changes_the_predictions_of_all_pictures(serve, folder):
    client, session = serve(folder[0])
    before = client.state()
    assert (before["predicted"] == -1).all()
    state = label_some(client, session, folder[1])
    names = [state["classes"][code] for code in state["predicted"]]
    right = [name == folder[1][file] for name, file in zip(names, session.names, strict=True)]
    assert np.mean(right) > 0.9
    assert (state["chance"] <= 100).all()
    assert (state["labels"] >= 0).sum() == 12


def test_one_class_predicts_nothing_since_all_would_be_of_it(serve, folder):
    client, _ = serve(folder[0])
    _, state = client.act(revision=client.state()["revision"], do="label", numbers=[0], name="a")
    assert (state["predicted"] == -1).all()


def test_a_state_that_the_page_has_is_not_sent_again(serve, folder):
    client, _ = serve(folder[0])
    state = client.state()
    assert client.ask(f"api/state?since={state['revision']}") == (204, b"")


def test_marks_confirmations_and_clearing(serve, folder):
    client, session = serve(folder[0])
    state = label_some(client, session, folder[1])
    last = numbers_of(session, folder[1], "f")[-1]
    _, state = client.act(revision=state["revision"], do="confirm", numbers=[last])
    assert (state["labels"][last], state["flags"][last] & 2) == (state["predicted"][last], 2)
    _, state = client.act(revision=state["revision"], do="mark", numbers=[last], code=-3)
    assert (state["labels"][last], state["flags"][last] & 2) == (-3, 0)
    _, state = client.act(revision=state["revision"], do="clear", numbers=[last])
    assert state["labels"][last] == -1


def test_undo_redo_rename_and_merge(serve, folder):
    client, session = serve(folder[0])
    state = label_some(client, session, folder[1])
    for change in (
        {"do": "rename", "old": "a", "new": "alpha"},
        {"do": "merge", "old": "b", "new": "alpha"},
        {"do": "undo"},
        {"do": "undo"},
        {"do": "redo"},
    ):
        status, state = client.act(revision=state["revision"], **change)
        assert status == 200, state
    assert state["classes"] == ["alpha", *"bcdef"]
    assert (state["can_undo"], state["can_redo"]) == (True, True)


def test_a_stale_page_cannot_overwrite_a_label_it_does_not_show(serve, folder):
    client, session = serve(folder[0])
    old = client.state()["revision"]
    assert client.act(revision=old, do="label", numbers=[3], name="mine")[0] == 200
    status, error = client.act(revision=old, do="label", numbers=[2, 3], name="theirs")
    assert (status, session.given[3].name, 2 in session.given) == (409, "mine", False)
    assert session.names[3] in error
    for change in ({"do": "undo"}, {"do": "rename", "old": "mine", "new": "x"}):
        assert client.act(revision=old, **change)[0] == 409
    # Pictures that nobody else touched can be labelled from an old state.
    assert client.act(revision=old, do="label", numbers=[4], name="theirs")[0] == 200
    assert {n: label.name for n, label in session.given.items()} == {3: "mine", 4: "theirs"}


def test_a_thousand_labels_of_four_pages_under_load_are_all_kept(serve, folder, raw_pixels):
    from psco.labelling import Labelling

    client, session = serve(folder[0])
    failed: list[object] = []
    is_done = threading.Event()

    def label(page: int) -> None:
        revision = client.state()["revision"]
        for turn in range(250):
            number = 4 * (turn % 12) + page
            status, state = client.act(
                revision=revision, do="label", numbers=[number], name=f"{page}-{turn}"
            )
            if status == 200:
                revision = state["revision"]
            else:
                failed.append(state)

    def read() -> None:
        while not is_done.is_set():
            client.json("api/suggest?count=24")
            client.ask("thumbnails/5")

    pages = [threading.Thread(target=label, args=(page,)) for page in range(4)]
    reader = threading.Thread(target=read)
    for thread in (*pages, reader):
        thread.start()
    for thread in pages:
        thread.join()
    is_done.set()
    reader.join()
    assert (failed, session.revision) == ([], 1000)
    expected = {4 * (t % 12) + page: f"{page}-{t}" for page in range(4) for t in range(250)}
    session.close()
    with Labelling(raw_pixels, folder[0]) as again:
        assert {n: label.name for n, label in again.given.items()} == expected


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"do": "destroy"},
        {"do": "label", "numbers": [48], "name": "a"},
        {"do": "label", "numbers": [-1], "name": "a"},
        {"do": "label", "numbers": [True], "name": "a"},
        {"do": "label", "numbers": ["../../etc/passwd"], "name": "a"},
        {"do": "label", "numbers": [], "name": "a"},
        {"do": "label", "numbers": [0], "name": "../outside"},
        {"do": "label", "numbers": [0], "name": "/not usable"},
        {"do": "label", "numbers": [0], "name": 7},
        {"do": "mark", "numbers": [0], "code": 0},
        {"do": "rename", "old": "nobody", "new": "x"},
    ],
)
def test_changes_that_make_no_sense_are_refused_and_change_nothing(serve, folder, change):
    client, session = serve(folder[0])
    status, error = client.act(revision=client.state()["revision"], **change)
    assert (status, session.revision) == (400, 0)
    assert error


@pytest.mark.parametrize("body", ["", "[]", "{", "[" * 100_000, "\xff"])
def test_bodies_that_are_no_change_are_refused(serve, folder, body):
    client, _ = serve(folder[0])
    assert client.ask("api/act", body.encode("latin-1"))[0] == 400


def test_too_large_a_body_is_refused(serve, folder):
    client, _ = serve(folder[0])
    status, content = client.ask("api/act", b" " * (9 << 20))
    assert (status, b"8 MB" in content) == (400, True)


@pytest.mark.parametrize(
    "path",
    [
        *("page/../desk.py", "page/..%2fdesk.py", "page/%2e%2e/desk.py", "page/", "page"),
        *("thumbnails/../../../etc/passwd", "thumbnails/drawing-00.png", "thumbnails/-1"),
        *("pictures/0/../../x", "pictures/%2fetc%2fpasswd", "pictures/48", "pictures/1e9"),
        *("api/download/../labels.journal", "api/download/journal", "labels.journal"),
    ],
)
def test_no_path_leads_to_a_file(serve, folder, path):
    client, _ = serve(folder[0])
    status, content = client.ask(path)
    assert status in (400, 404), content


def test_without_the_token_or_with_another_name_nothing_is_answered(serve, folder):
    client, _ = serve(folder[0])
    for path in ("/", "/api/state", "/wrong/api/state", "/thumbnails/0", "/page/main.js"):
        assert client.raw(path)[0] == 403
    assert client.ask("api/state", host="evil.example")[0] == 421
    assert client.ask("api/act", b"{}", origin="http://evil.example")[0] == 403


def test_pages_and_pictures_come_with_headers_that_allow_nothing_from_elsewhere(serve, folder):
    client, _ = serve(folder[0])
    for path, kind in {
        "": "text/html",
        "page/main.js": "text/javascript",
        "thumbnails/0": "image",
    }.items():
        status, headers, _ = client.raw(f"/{client.token}/{path}")
        assert status == 200
        assert headers["content-type"].startswith(kind)
        assert "script-src" not in headers["content-security-policy"]  # so default-src 'self' holds
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_thumbnails_are_made_once_and_again_when_the_file_changes(serve, folder):
    client, session = serve(folder[0])
    kept = session.session / "thumbnails"
    first = client.ask("thumbnails/0")[1]
    assert len([path for path in kept.rglob("*") if path.is_file()]) == 1
    assert client.ask("thumbnails/0")[1] == first
    Image.new("L", (28, 40), 90).save(folder[0] / session.names[0])
    assert client.ask("thumbnails/0")[1] != first


def test_broken_pictures_are_shown_as_such_and_take_no_label(serve, folder):
    (folder[0] / "broken.png").write_bytes(b"no picture")
    client, session = serve(folder[0])
    number = session.names.index("broken.png")
    state = client.state()
    assert [n for n in range(49) if state["flags"][n] & BROKEN] == [number]
    assert str(number) in client.json("api/pictures")["reasons"]
    assert client.ask(f"thumbnails/{number}")[0] == 400
    status, error = client.act(revision=0, do="label", numbers=[number], name="a")
    assert (status, "cannot be read" in error) == (400, True)
    assert client.act(revision=0, do="label", numbers=[number, 5], name="a")[0] == 200
    assert list(session.given) == [5]


def test_names_that_are_no_text_arrive_as_text(serve, folder):
    strange = ["<img src=x onerror=alert(1)>.png", "\u202egnp.png", "line\nbreak.png", "\udcff.png"]
    source = next(folder[0].iterdir()).read_bytes()
    for name in strange:
        (folder[0] / name).write_bytes(source)
    client, _ = serve(folder[0])
    names = client.json("api/pictures")["names"]
    assert len(names) == 52
    assert strange[0] in names
    assert all(name.isprintable() for name in names)


def test_look_alikes_of_a_picture_and_of_a_dropped_file(serve, folder):
    client, session = serve(folder[0])
    label = folder[1][session.names[0]]
    similar = client.json("api/similar?number=0&count=5")
    assert {folder[1][session.names[n]] for n, _ in similar} == {label}
    dropped = client.json("api/similar?count=3", (folder[0] / session.names[0]).read_bytes())
    assert dropped[0][0] == 0
    group = client.json("api/group?number=0&count=10")
    assert group["numbers"]
    assert 0 not in group["numbers"]
    status, content = client.ask("api/similar?count=3", b"no picture")
    assert (status, b"cannot decode" in content) == (400, True)


def test_findings_and_estimates_have_the_form_that_the_page_reads(serve, folder):
    (folder[0] / "copy.png").write_bytes((folder[0] / "drawing-00.png").read_bytes())
    client, session = serve(folder[0])
    label_some(client, session, folder[1], each=3)
    assert all(len(row) == 2 for row in client.json("api/suggest?count=5"))
    keep, others, similarity = client.json("api/duplicates")[0]
    assert {session.names[n] for n in (keep, *others)} == {"copy.png", "drawing-00.png"}
    assert similarity > 0.99
    for path, width in {"outliers": 2, "mistakes": 4}.items():
        assert all(len(row) == width for row in client.json(f"api/{path}"))
    assert len(client.json("api/clusters")) == 49
    estimate = client.json("api/accuracy")
    assert estimate["left_out"]["count"] == 18
    low, high = estimate["left_out"]["interval"]
    assert 0 <= low <= estimate["left_out"]["accuracy"] <= high <= 1
    assert all(len(row) == 4 for row in estimate["history"])
    places = np.frombuffer(client.ask("api/map?kind=pca")[1], "<f4").reshape(-1, 2)
    assert places.shape == (49, 2)
    assert (np.abs(places) <= 1).all()


def test_exports_are_written_to_one_folder_that_no_page_can_choose(serve, folder):
    client, session = serve(folder[0])
    assert client.ask("api/export", json.dumps({"what": "folders", "how": "copy"}))[0] == 400
    label_some(client, session, folder[1])
    out = folder[0].with_name("out")
    done = client.json("api/export", json.dumps({"what": "csv", "predicted": True}))
    assert done == {"path": str(out / "labels.csv"), "pictures": 48}
    for what, how in {"folders": "copy", "classifier": ""}.items():
        body = {"what": what, "how": how, "path": "/tmp/elsewhere"}
        path = client.json("api/export", json.dumps(body))["path"]
        assert path.startswith(str(out))
    assert sorted(path.name for path in (out / "classes").iterdir()) == list("abcdef")
    status, answer = client.ask("api/export", json.dumps({"what": "page"}))
    assert status == 400
    assert b"a page runs the backbones conv4 and conv5" in answer
    again = client.json("api/export", json.dumps({"what": "folders", "how": "link"}))
    assert again["path"] == str(out / "classes-2")
    status, headers, content = client.raw(f"/{client.token}/api/download/csv")
    assert (status, headers["content-disposition"]) == (200, 'attachment; filename="labels.csv"')
    rows = list(csv.DictReader(content.decode().splitlines()))
    assert len(rows) == 12
    assert client.ask("api/download/folders")[0] == 400
    assert not (out / "classes-3").exists()
    for bad in ({"what": "../x"}, {"what": "folders", "how": "burn"}):
        assert client.ask("api/export", json.dumps(bad))[0] == 400


def test_a_page_that_knows_the_labelled_classes_is_exported(folder, tmp_path):
    with psco.Labelling("handwriting", folder[0]) as session:
        session.embed()
        for name in "ab":
            session.label(numbers_of(session, folder[1], name)[:2], name)
        exports = Exports(session, tmp_path / "out")
        assert exports.write("page")["path"] == str(tmp_path / "out" / "page.html")
        name, content = exports.read("page")
    assert name == "page.html"
    assert b"<title>pictures" in content


def test_labels_that_two_people_give_differently_are_listed_and_left_out(
    folder, run_folder, tmp_path
):
    names = sorted(path.name for path in folder[0].iterdir() if path.suffix == ".png")[:2]
    for person, second in (("ann", "b"), ("bob", "c")):
        rows = f"path,label\n{names[0]},a\n{names[1]},{second}\n"
        (tmp_path / f"{person}.csv").write_text(rows)
    files = [word for person in ("ann", "bob") for word in ("--labels", tmp_path / f"{person}.csv")]
    command = [sys.executable, "-m", "psco", "label", run_folder, folder[0], *files, "--no-browser"]
    with subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        warning = process.stderr.readline()
        process.kill()
    assert f"warning: '{names[1]}' is 'b' in " in warning
    assert warning.endswith("bob.csv; it gets no label\n")
