"""The session as a whole: label by suggestion, confirm predictions, go on, leave with files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from psco import FewShotClassifier, Labelling
from psco.classifier.bulk import classify_files, fit_files, list_image_files
from psco.errors import InputError
from psco.labelling import NONE_OF_THESE, NOT_USABLE
from psco.labelling.reading import look_at
from psco.labelling.session import SESSION


@pytest.fixture
def session(raw_pixels, folder):
    with Labelling(raw_pixels, folder) as opened:
        yield opened


def label_all(session, truth, numbers):
    for number in numbers:
        session.label([number], truth(session.names[number]))


def test_suggested_labels_find_the_classes_and_predict_the_rest(session, truth):
    assert session.predictions().classes == []
    assert (session.predictions().number == -1).all()
    label_all(session, truth, [each.number for each in session.suggest(12)])
    assert len(session.classes) == 6
    found = session.predictions()
    assert found.revision == session.revision == 12
    right = [found.name(i) == truth(name) for i, name in enumerate(session.names)]
    assert np.mean(right) > 0.7  # chance is 0.17
    assert ((found.probability > 1 / 6) & (found.probability <= 1)).all()


def test_predictions_follow_every_label(session):
    session.label([0], "oak")
    assert set(session.predictions().number) == {0}
    session.label([1], "elm")
    before = session.predictions()
    assert set(before.number) == {0, 1}
    session.undo()
    assert set(session.predictions().number) == {0}
    session.redo()
    np.testing.assert_array_equal(session.predictions().number, before.number)


def test_a_written_classifier_predicts_what_the_session_predicts(session, truth, folder, tmp_path):
    label_all(session, truth, [each.number for each in session.suggest(20)])
    session.write_classifier(tmp_path / "mine.psco")
    classifier = FewShotClassifier.load(tmp_path / "mine.psco")
    found = session.predictions()
    rows = classify_files(classifier, list_image_files([folder]))
    for number, row in enumerate(rows):
        if found.unknown[number]:
            assert row.label == "unknown"
        else:
            assert row.label == found.name(number)
            assert row.probability == pytest.approx(found.probability[number], abs=1e-4)
    assert found.unknown.any() or classifier.threshold_ is not None
    assert len(classifier.support_images_) == 20


def test_a_classifier_is_where_a_session_goes_on(session, truth, folder, tmp_path):
    label_all(session, truth, [each.number for each in session.suggest(12)])
    session.write_classifier(tmp_path / "mine.psco")
    expected = session.predictions()
    with Labelling(tmp_path / "mine.psco", folder, tmp_path / "new") as again:
        assert again.given == {}
        assert set(again.classes) == set(session.classes)
        found = again.predictions()
        names = [found.name(number) for number in range(60)]
        assert names == [expected.name(number) for number in range(60)]
        again.rename(again.classes[0], "new name")
        again.label([0], "new name")
        again.write_classifier(tmp_path / "more.psco")
    more = FewShotClassifier.load(tmp_path / "more.psco")
    assert len(more.support_names_) == 13
    assert "new name" in more.classes_


def test_confirmed_predictions_become_labels_and_are_kept_apart(session, truth):
    label_all(session, truth, [each.number for each in session.suggest(12)])
    found = session.predictions()
    numbers = np.flatnonzero(~found.unknown)[:20]
    before = session.given
    session.confirm(numbers)
    for number in numbers.tolist():
        if number in before:
            assert session.given[number] == before[number]
        else:
            assert session.given[number][:3] == (found.name(number), found.name(number), True)
    tested = session.accuracy().left_out.total
    assert tested <= 12


def test_accuracy_is_estimated_from_labels_left_out_and_from_predictions_that_stood(session, truth):
    assert session.accuracy().left_out.total == session.accuracy().judged.total == 0
    right = total = 0
    for number in range(40):
        name = truth(session.names[number])
        found = session.predictions()
        if found.classes and not found.unknown[number]:
            total += 1
            right += found.name(number) == name
        session.label([number], name)
    known = session.accuracy()
    assert known.judged == (right, total)
    assert known.left_out == session.accuracy().left_out
    slow = 0
    names = [truth(name) for name in session.names[:40]]
    z = session._pictures.embed().support[:40].numpy()
    for i in range(40):
        centres = {}
        for name in set(names):
            members = [j for j in range(40) if names[j] == name and j != i]
            centres[name] = z[members].sum(axis=0) / np.linalg.norm(z[members].sum(axis=0))
        slow += max(centres, key=lambda name: z[i] @ centres[name]) == names[i]
    assert known.left_out == (slow, 40)
    assert known.history[-1].labels == 40
    assert known.history[-1].accuracy == known.left_out.accuracy
    assert [p.labels for p in known.history] == sorted({p.labels for p in known.history})


def test_states_are_neither_classes_nor_suggested_nor_exported(session, tmp_path):
    session.label([0], NONE_OF_THESE)
    session.label([1], NOT_USABLE)
    session.label([2], "oak")
    assert session.classes == ["oak"]
    assert {0, 1, 2}.isdisjoint(each.number for each in session.suggest(60))
    session.write_csv(tmp_path / "labels.csv")
    assert (tmp_path / "labels.csv").read_text().count("\n") == 2
    assert [row.label for row in session.rows()] == ["oak"]


def test_tables_can_hold_predictions_and_begin_another_session(session, truth, folder, tmp_path):
    label_all(session, truth, [each.number for each in session.suggest(12)])
    session.write_csv(tmp_path / "labels.csv")
    session.write_csv(tmp_path / "all.csv", predicted=True)
    unknown = session.predictions().unknown
    unknown[list(session.given)] = False
    assert (tmp_path / "all.csv").read_text().count("\n") == 61 - unknown.sum()
    with Labelling(session.encoder, folder, tmp_path / "new", tmp_path / "labels.csv") as other:
        labels = {number: label.name for number, label in session.given.items()}
        assert {number: label.name for number, label in other.given.items()} == labels
        assert other.revision == 1
    with Labelling(session.encoder, folder, tmp_path / "new", tmp_path / "labels.csv") as other:
        assert other.revision == 1


def test_conflicts_of_two_label_files_are_left_unlabelled(raw_pixels, folder, tmp_path):
    name = sorted(path.name for path in folder.iterdir())[0]
    for person in ("ann", "bob"):
        (folder / f"{person}.csv").write_text(f"path,label\n{name},{person}'s\n")
    files = [folder / "ann.csv", folder / "bob.csv"]
    with Labelling(raw_pixels, folder, tmp_path / "session", files) as opened:
        assert [conflict.picture for conflict in opened.conflicts] == [name]
        assert opened.given == {}


def test_class_folders_can_be_fitted_on(session, truth, tmp_path, raw_pixels):
    label_all(session, truth, range(30))
    session.write_folders(tmp_path / "classes", "link")
    listing = list_image_files([tmp_path / "classes"])
    assert set(listing.classes) == set(session.classes)
    assert len(listing) == 30


def test_broken_pictures_are_never_suggested_predicted_or_used(raw_pixels, folder, tmp_path):
    (folder / "0000_aa_broken.png").write_bytes(b"\x89PNG nothing")
    with Labelling(raw_pixels, folder) as session:
        session.embed()
        assert list(session.broken) == [0]
        session.label([0], "broken")  # its picture teaches nothing
        session.label([1], "oak")
        session.label([2], "elm")
        found = session.predictions()
        assert found.classes == ["oak", "elm"]
        assert found.number[0] == -1
        assert found.name(0) is None
        assert 0 not in {each.number for each in session.suggest(60)}
        assert session.clusters()[0] == -1
        assert np.isnan(session.map()[0]).all()
        with pytest.raises(InputError, match="is broken"):
            session.similar(0)
        session.write_classifier(tmp_path / "x.psco")
        assert set(FewShotClassifier.load(tmp_path / "x.psco").classes_) == {"oak", "elm"}


def test_similar_pictures_are_of_the_same_character(session, truth, folder):
    found = session.similar(3, 4)
    assert 3 not in [each.number for each in found]
    assert [each.similarity for each in found] == sorted(
        (each.similarity for each in found), reverse=True
    )
    outside = session.similar(folder / session.names[3], 1)
    assert outside[0].number == 3
    assert outside[0].similarity == pytest.approx(1, abs=1e-5)
    pixels = np.full((28, 28), 255, dtype=np.uint8)
    assert len(session.similar(pixels, 100)) == 60
    with pytest.raises(InputError, match="no picture 60"):
        session.similar(60)


def test_copies_are_grouped_and_the_labelled_one_is_kept(raw_pixels, folder):
    from PIL import Image

    names = sorted(path.name for path in folder.iterdir())
    Image.open(folder / names[2]).resize((56, 56)).save(folder / "0099_copy.png")
    with Labelling(raw_pixels, folder) as session:
        copy = session.names.index("0099_copy.png")
        (group,) = session.duplicates()
        assert {group.keep, *group.others} == {2, copy}
        assert group.keep == copy  # the larger file
        assert 0.97 <= group.similarity <= 1
        session.label([2], "oak")
        assert session.duplicates()[0].keep == 2


def test_maps_are_in_the_plane_and_tsne_comes_later(session):
    points = session.map()
    assert points.shape == (60, 2)
    assert np.abs(points).max() == pytest.approx(1)
    first = session.map("tsne", wait=False)
    later = session.map("tsne")
    assert first is None or first is later
    assert later.shape == (60, 2)
    assert session.map("tsne", wait=False) is later
    with pytest.raises(InputError, match="'pca' or 'tsne'"):
        session.map("globe")


def test_labels_can_be_given_while_pictures_are_embedded(raw_pixels, folder, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def wait(done, total):
        begun.set()
        go_on.wait(10)

    with Labelling(raw_pixels, folder) as session:
        embedding = threading.Thread(target=session.embed, args=(wait,))
        embedding.start()
        begun.wait(10)
        assert not session.is_embedded
        assert session.label([0], "oak") == 1
        go_on.set()
        embedding.join()
        assert session.is_embedded
        assert session.predictions().classes == ["oak"]


def test_a_killed_session_goes_on_where_it_was(raw_pixels, folder):
    code = f"""
from psco import Encoder, Labelling, load_recipe
changes = ["method.name=pixels", "image.size=16", "image.source_size=16"]
session = Labelling(Encoder.untrained(load_recipe("glyphs", changes)), {str(folder)!r})
for number in range(60):
    print(session.label([number], f"class {{number % 3}}"), flush=True)
"""
    killed = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for line in killed.stdout:
        if int(line) == 25:
            os.kill(killed.pid, signal.SIGKILL)
            break
    rest = killed.stdout.read().split()
    killed.wait()
    killed.stdout.close()
    with Labelling(raw_pixels, folder) as session:
        assert session.revision >= int(rest[-1] if rest else 25)
        assert session.given.keys() == set(range(session.revision))
        assert session.classes == ["class 0", "class 1", "class 2"]


def test_a_second_process_is_refused(session, folder, raw_pixels):
    with pytest.raises(InputError, match="open in another process"):
        Labelling(raw_pixels, folder)


def test_looking_writes_nothing_beside_the_pictures(raw_pixels, folder, session):
    session.label([0], "oak")
    with look_at(raw_pixels, folder) as seen:  # while the session is open
        assert seen.classes == ["oak"]
        seen.label([1], "elm")
    assert session.classes == ["oak"]
    session.close()
    with look_at(raw_pixels, folder, labels=folder / SESSION) as seen:
        assert seen.classes == ["oak"]


def test_folders_without_pictures_are_refused(raw_pixels, tmp_path):
    with pytest.raises(InputError, match="no folder"):
        Labelling(raw_pixels, tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no images"):
        Labelling(raw_pixels, tmp_path / "empty")
    assert not (tmp_path / "empty" / SESSION).exists()


def test_a_classifier_needs_two_classes(session, tmp_path):
    session.label([0], "oak")
    with pytest.raises(InputError, match="at least 2 classes, got 1"):
        session.write_classifier(tmp_path / "x.psco")
    assert not (tmp_path / "x.psco").exists()


def test_fit_reads_the_table_that_a_session_writes(session, truth, tmp_path, run):
    label_all(session, truth, range(30))
    session.write_csv(tmp_path / "labels.csv")
    classifier = fit_files(run, tmp_path / "labels.csv")
    assert set(classifier.classes_) == set(session.classes)


def test_four_threads_label_and_predict_at_once(session):
    failures = []

    def work(first):
        try:
            for number in range(first, 60, 4):
                session.label([number], f"class {first}")
                found = session.predictions()
                assert found.revision >= 1
                assert found.number.max() < len(found.classes)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert session.revision == 60
    assert {n: label.name for n, label in session.given.items()} == {
        n: f"class {n % 4}" for n in range(60)
    }
