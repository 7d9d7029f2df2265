"""The pages that people look at: self-contained, complete, and drawn by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import psco
from psco.classifier.bulk import classify_files, list_image_files
from psco.classifier.results import Row
from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
from psco.recipes.recipe import load_recipe
from psco.report.classified import ContactSheet
from psco.report.evaluated import evaluation_page
from psco.report.gallery import task_rows
from psco.report.maps import embedding_map, main_directions
from psco.report.page import Part, number_table, page
from psco.report.plots import accuracy_plot, reliability_plot, shots_plot, training_plot
from psco.report.trust import trust_part


@pytest.fixture
def images() -> psco.ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), dtype=np.uint8)
    return psco.ImageSet(pixels, np.arange(60) // 10, tuple("abcdef"), "noise", "test")


@pytest.fixture
def html(images, raw_pixels) -> str:
    model = raw_pixels
    drawn = draw_tasks(images, [(3, 1), (3, 5)], 4, 10, 0)
    return evaluation_page(model, images, drawn, evaluate_tasks(model, images, drawn), "pixels")


def test_an_evaluation_page_has_numbers_plots_tasks_and_a_map_and_needs_nothing_else(html):
    assert "3-way 1-shot" in html
    assert html.count("<svg") == 1
    assert html.count('<table class="task">') == 2
    assert html.count('<div class="map"') == 1
    assert "inductive" in html
    for address in re.findall(r'(?:src|href)="([^"]*)"', html):
        assert address.startswith(("data:", "#")), address
    assert "<script" not in html


def test_a_task_marks_wrong_queries_with_what_they_were_taken_for(images):
    support, query = np.array([[0], [10]]), np.array([[1, 2], [11, 12]])
    predicted, rejected = np.array([[0, 1], [1, 1]]), np.array([[False, True], [True, False]])
    rows = task_rows(images.images, support, query, predicted, np.full((2, 2), 0.5), rejected)
    assert rows.count('class="right"') == 2
    assert rows.count('class="right unknown"') == 1
    assert rows.count('class="wrong unknown"') == 1
    assert rows.count('class="as"') == 1
    assert rows.count("50%") == 4
    assert rows.count("<img") == 2 + 4 + 1


def test_the_map_shows_every_image_within_its_frame(images):
    text = embedding_map(images.images, torch.randn(60, 5), images.labels)
    places = [float(x) for x in re.findall(r"(?:left|top):([\d.]+)%", text)]
    assert len(places) == 120
    assert min(places) == 4
    assert max(places) == 96


def test_every_class_of_a_map_has_a_frame_of_its_own(images):
    text = embedding_map(images.images[:24], torch.randn(24, 5), np.arange(24) // 2)
    assert len(set(re.findall(r"border-color:[^;]*;border-style:\w+", text))) == 12


def test_the_main_directions_are_those_of_a_principal_component_analysis():
    from sklearn.decomposition import PCA

    vectors = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 7)
    ours, theirs = main_directions(vectors).numpy(), PCA(2).fit_transform(vectors.numpy())
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-4)
    np.testing.assert_allclose(main_directions(-vectors).abs(), np.abs(ours), atol=1e-4)
    assert main_directions(torch.zeros(3, 4)).isfinite().all()
    assert main_directions(torch.randn(3, 1)).shape == (3, 2)


def test_plots_are_the_same_file_for_the_same_numbers():
    results = [
        {"method": m, "ways": 5, "shots": k, "mean": 50.0 + k, "ci95": 1.0}
        for m in ("psco", "pixels")
        for k in (1, 5)
    ]
    rows = [{"step": 1, "total": 2.0, "overlap": 0.1}, {"step": 2, "total": 1.0, "overlap": 0.0}]
    for draw in (
        lambda: accuracy_plot(results, {"psco": "PsCo"}),
        lambda: shots_plot(results[:2]),
        lambda: training_plot(rows),
        lambda: reliability_plot([(3, 0.5, 0.4), (0, 0, 0), (9, 0.9, 0.95)], "5-way 1-shot"),
    ):
        assert draw() == draw()
        assert draw().startswith("<svg")
    assert "purity" not in training_plot(rows)


def test_a_reliability_diagram_leaves_out_what_few_predictions_say():
    rows = [(2, 0.15, 1.0), (500, 0.5, 0.4), (30, 0.7, 0.7), (0, 0, 0), (900, 0.9, 0.95)]
    assert reliability_plot(rows, "") == reliability_plot(rows[1:3] + rows[4:], "")
    few = [(1, 0.4, 0.0), (3, 0.9, 1.0)]
    assert reliability_plot(few, "") == reliability_plot(few[1:], "")


def test_text_from_outside_is_escaped():
    text = page("<b>", "a & b", [Part("<i>", "<u>", "<p>kept</p>")], "<s>")
    assert "<b>" not in text
    assert "&lt;i&gt;" in text
    assert "<p>kept</p>" in text
    assert "&lt;x&gt;" in number_table(["<x>"], [["1"]])
    assert 'class="strong"' not in number_table(["x"], [["1"]])
    assert 'class="strong"' in number_table(["x"], [["1"]], strong=0)


@pytest.fixture
def clf(tiny) -> psco.FewShotClassifier:
    """Make a classifier of black and white, by brightness alone."""
    encoder = psco.Encoder.untrained(load_recipe("glyphs", [*tiny, "heads.predictor=false"]))
    pixels = np.stack([np.full((16, 16), shade, np.uint8) for shade in (0, 255)])
    return psco.FewShotClassifier(encoder).fit(pixels, ["black", "white"])


@pytest.fixture
def folder(tmp_path):
    """Draw pictures in folders named by classes, and one that is no picture."""
    for name in ("black", "white", "other"):
        (tmp_path / "shades" / name).mkdir(parents=True)
        for number, shade in enumerate((0, 20, 230)):
            path = tmp_path / "shades" / name / f"<{number}>.png"
            Image.new("L", (20, 20), shade).save(path)
    (tmp_path / "shades" / "other" / "broken.png").write_bytes(b"")
    return tmp_path / "shades"


def sheet_of(clf, listing, rows) -> str:
    sheet = ContactSheet(clf, listing)
    assert list(sheet.watch(rows)) == rows
    return sheet.page("shades.psco")


def test_a_contact_sheet_marks_wrong_unknown_and_broken_pictures(clf, folder):
    listing = list_image_files([folder])
    rows = list(classify_files(clf, listing))
    rows[-1] = rows[-1]._replace(
        label="unknown", probability=None, runner_up="white", runner_up_probability=0.6
    )
    told = [(Path(row.path).parent.name, row.label) for row in rows[:-1]]
    wrong = sum(folder != "other" and folder != label for folder, label in told)
    text = sheet_of(clf, listing, rows)
    assert text.count('<figure class="wrong"') == wrong > 0
    assert text.count('<figure class="unknown"') == 1
    assert text.count("<figure") == 9
    assert text.count("<img") == 9 * 2  # and the nearest support of each
    assert "white? 60%" in text
    assert "the file is empty" in text
    assert "10 pictures, classified by shades.psco" in text
    assert "&lt;0&gt;.png" in text
    assert "<0>.png" not in text
    for address in re.findall(r'(?:src|href)="([^"]*)"', text):
        assert address.startswith("data:"), address


def test_classes_of_the_folders_count_only_if_the_classifier_knows_them(clf, folder):
    single = list_image_files([folder / "black" / "<0>.png", folder / "other" / "<2>.png"])
    rows = [Row(name, "white", 0.9, "black", 0.1) for name in single.files]
    text = sheet_of(clf, single, rows)
    assert "Folders tell the class of 1 pictures; 0 of them" in text
    assert text.count('<figure class="wrong"') == 1
    assert text.count('<figure class="plain"') == 1


def test_a_contact_sheet_of_thousands_shows_the_least_sure_and_says_how_many_it_does_not(
    clf, folder
):
    many = list_image_files([folder / "other" / "<0>.png"])
    many = replace(many, files=many.files * 10_000)
    chances = np.random.default_rng(0).uniform(0.5, 1, len(many)).tolist()
    rows = [
        Row(path, "white", chance, "black", 1 - chance)
        for path, chance in zip(many.files, chances, strict=True)
    ]
    sheet = ContactSheet(clf, many)
    kept = max(sum(map(len, sheet._cards.values())) for _ in sheet.watch(rows))
    assert kept < 1000
    text = sheet.page("many")
    assert text.count("<figure") == 150
    assert "150 of 10000 are shown, 9850 are not" in text
    shown = [int(share) for share in re.findall(r"</b> (\d+)%", text)]
    assert shown == sorted(shown)
    assert shown[-1] == round(100 * sorted(chances)[149])


def test_the_trust_part_has_a_row_for_each_setting_and_a_diagram():
    rows = tuple((n, n / 10 + 0.05, n / 10) for n in range(10))
    one = psco.classifier.OpenSetQuality(
        "x", "test", 5, 1, 15, 200, 0, 0.9, 0.0123, 0.95, 0.051, 0.7, rows
    )
    part = trust_part([one, replace(one, shots=5)])
    assert part.body.count("<tr") == 3
    for text in ("5-way 1-shot", "90.0%", "0.012", "0.950", "5.1%", "70.0%", "ideal"):
        assert text in part.body
    assert part.body.count("<svg") == 1


def test_an_evaluation_page_of_an_encoder_says_how_far_to_trust_it_or_why_not(images, tiny):
    model = psco.Encoder.untrained(load_recipe("glyphs", tiny))

    def written(shots):
        drawn = draw_tasks(images, [(3, shots)], 4, 10, 0)
        return evaluation_page(model, images, drawn, evaluate_tasks(model, images, drawn), "net")

    assert (
        "Not measured: reject_below=&#x27;auto&#x27; requires a class with two supports"
        in written(1)
    )
    assert "genuine rejected" in written(4)


def test_tasks_on_a_page_show_what_a_classifier_says(images, tiny):
    model = psco.Encoder.untrained(load_recipe("glyphs", tiny))
    drawn = draw_tasks(images, [(3, 4)], 6, 1, 0)
    for rule in ("prototype", "knn", "adapt", "scratch"):
        options = {"steps": 3} if rule in ("adapt", "scratch") else {}
        reports = evaluate_tasks(model, images, drawn, rule, options)
        text = evaluation_page(model, images, drawn, reports, "net")
        task = text[text.index('<table class="task">') :]
        right = len(re.findall('class="right[" ]', task))
        assert right == round(reports[0].mean / 100 * 18), rule
        if rule == "scratch":  # no classifier has it
            continue
        clf = psco.FewShotClassifier(model, rule, rule_options=options, reject_below="auto")
        clf.fit(images.images[drawn[0].support.ravel()], np.arange(3).repeat(4))
        asked = images.images[drawn[0].query.ravel()]
        shares = [f"{chance:.0%}" for chance in clf.predict_proba(asked).max(axis=1)]
        assert re.findall("<small>(.*?)</small>", task) == shares
        rejected = (clf.predict(asked) == "unknown").sum()
        assert len(re.findall('class="(?:right|wrong) unknown"', task)) == rejected


def test_a_browser_draws_the_contact_sheet(clf, folder, tmp_path):
    listing = list_image_files([folder])
    rows = list(classify_files(clf, listing))
    flipped = {"black": "white", "white": "black"}
    rows[0] = rows[0]._replace(label=flipped[Path(rows[0].path).parent.name])
    pixels = screenshot(sheet_of(clf, listing, rows), tmp_path)
    assert count(pixels, "9ccfb4") > 500  # frames of what is not wrong
    assert count(pixels, "d0342c") > 200  # and of what is
    assert count(pixels, "2563a8") > 200  # bars


def screenshot(html: str, tmp_path) -> np.ndarray:
    """Draw a page with a real browser: (h, w, 3) pixels."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs Chromium")
    (tmp_path / "page.html").write_text(html)
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--disable-quic", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=900,1600",
        f"--screenshot={tmp_path / 'page.png'}", (tmp_path / "page.html").as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return np.asarray(Image.open(tmp_path / "page.png").convert("RGB")).astype(int)


def count(pixels: np.ndarray, colour: str) -> int:
    """Count the pixels of about a colour."""
    wanted = np.array(list(bytes.fromhex(colour)))
    return int((np.abs(pixels - wanted).sum(axis=2) < 12).sum())


def test_a_browser_draws_the_evaluation_page(html, tmp_path):
    pixels = screenshot(html, tmp_path)
    assert count(pixels, "2563a8") > 200  # plot and frames of the supports
    assert count(pixels, "d0342c") > 50  # pixels cannot classify noise: some queries are wrong
