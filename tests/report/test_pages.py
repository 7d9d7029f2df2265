"""Pages, plots and the page of an evaluation: self-contained, complete, drawn by a browser."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import psco
from psco.data.tasks import Tasks
from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
from psco.recipes.recipe import load_recipe
from psco.report.confusion import confusion_counts, confusion_table
from psco.report.evaluated import evaluation_page
from psco.report.gallery import task_rows
from psco.report.maps import embedding_map, principal_components
from psco.report.page import Part, number_table, page
from psco.report.plots import (
    COLOURS,
    accuracy_plot,
    reliability_plot,
    shots_plot,
    training_plot,
)
from psco.report.style import STYLE
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


def test_an_evaluation_page_has_numbers_plots_tasks_confusion_and_map_and_no_requests(html):
    assert "3-way 1-shot" in html
    assert html.count("<svg") == 1
    assert html.count('<table class="task">') == 2
    assert html.count('<div class="map"') == 1
    assert html.count('<table class="confusion">') == 1
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
    text = embedding_map(images.images, torch.randn(60, 5), images.labels, images.classes)
    places = [float(x) for x in re.findall(r"(?:left|top):([\d.]+)%", text)]
    assert len(places) == 120
    assert min(places) == 4
    assert max(places) == 96


def test_every_class_of_a_map_has_its_own_frame_and_a_place_in_the_legend(images):
    names = [f"<{number}>" for number in range(12)]
    text = embedding_map(images.images[:24], torch.randn(24, 5), np.arange(24) // 2, names)
    frames = re.findall(r"border-color:[^;]*;border-style:\w+", text)
    assert len(set(frames)) == 12
    legend = text[text.index('<ul class="legend">') :]
    assert re.findall(r'style="(.*?)"', legend) == list(dict.fromkeys(frames))
    assert re.findall(r"</i>(.*?)</li>", legend) == [f"&lt;{number}&gt;" for number in range(12)]


def test_principal_components_are_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    vectors = torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 7)
    ours, theirs = principal_components(vectors).numpy(), PCA(2).fit_transform(vectors.numpy())
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-4)
    np.testing.assert_allclose(principal_components(-vectors).abs(), np.abs(ours), atol=1e-4)
    assert principal_components(torch.zeros(3, 4)).isfinite().all()
    assert principal_components(torch.randn(3, 1)).shape == (3, 2)


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
    assert "own rejected" in written(4)


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


def test_the_confusion_matrix_counts_classes_of_the_image_set():
    labels = np.array([0, 0, 1, 1, 2, 2])
    tasks = Tasks(np.array([[[0], [2]], [[4], [0]]]), np.array([[[1], [3]], [[5], [1]]]))
    predicted = np.array([[[0], [0]], [[0], [0]]])  # both tasks answer their first class
    counts = confusion_counts(predicted, tasks, labels, 3)
    assert counts.tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 1]]


def test_the_confusion_matrix_shows_percent_of_rows_and_the_least_accurate_classes():
    text = confusion_table(np.array([[3, 1], [0, 5]]), ["a & b", "c"])
    assert re.findall(r"<td.*?>(\d*)</td>", text) == ["75", "25", "", "100"]
    assert "a &amp; b" in text
    assert "others" not in text
    many = np.diag(np.arange(1, 31)) + np.eye(30, k=1, dtype=int)
    names = [f"class {number}" for number in range(30)]
    text = confusion_table(many, names)
    assert [name for name in names if f'"{name}"' in text] == names[:15]
    assert "others" in text


def test_stacked_tables_name_the_column_of_each_cell():
    text = number_table(["setting", "accuracy"], [["5-way 1-shot", "50.0"]])
    assert '<td data-name="accuracy">50.0</td>' in text


def test_pages_use_one_scale_of_type():
    sizes = set(re.findall(r"font-size: ([^;}]+)", STYLE))
    assert sizes == {"1rem", "inherit", "var(--small)", "var(--large)", "var(--title)"}


def test_plots_take_their_colours_from_the_style_sheet():
    text = shots_plot([{"ways": 5, "shots": 1, "mean": 50.0, "ci95": 1.0}])
    assert "var(--c0)" in text
    assert "var(--ink)" in text
    assert not re.search("#(?!0000)[0-9a-f]{6}", text)
    assert all(f"--c{number}:" in STYLE for number in range(len(COLOURS)))


def test_a_browser_draws_the_evaluation_page(html, screenshot, count):
    pixels = screenshot(html)
    assert count(pixels, "2563a8") > 200  # plot and frames of the supports
    assert count(pixels, "c9302c") > 50  # pixels cannot classify noise: some queries are wrong
    assert count(pixels, "ffffff") > pixels.shape[0] * pixels.shape[1] / 2


def test_a_browser_draws_a_dark_page_if_the_user_prefers_one(html, screenshot, count):
    pixels = screenshot(html, "--blink-settings=preferredColorScheme=0")
    assert count(pixels, "14171b") > pixels.shape[0] * pixels.shape[1] / 2
    assert count(pixels, "6ca8ee") > 200


def test_no_page_is_wider_than_a_narrow_screen(html, browser):
    probe = "<script>document.title = document.documentElement.scrollWidth</script></body>"
    text = browser(html.replace("</body>", probe), "--window-size=500,900", "--dump-dom")
    assert int(re.search(r"<title>(\d+)</title>", text)[1]) <= 500
