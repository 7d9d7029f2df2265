"""The pages that people look at: self-contained, complete, and drawn by a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from PIL import Image

import psco
from psco.encoder import RawPixels
from psco.evaluation import draw_tasks, evaluate_tasks
from psco.report.evaluated import evaluation_page
from psco.report.gallery import task_rows
from psco.report.maps import embedding_map, main_directions
from psco.report.page import Part, number_table, page
from psco.report.plots import accuracy_plot, shots_plot, training_plot


@pytest.fixture
def images() -> psco.ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 1), dtype=np.uint8)
    return psco.ImageSet(pixels, np.arange(60) // 10, tuple("abcdef"), "noise", "test")


@pytest.fixture
def html(images) -> str:
    model = RawPixels(8)
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
    rows = task_rows(
        images.images, support, query, np.array([[0, 1], [1, 1]]), np.full((2, 2), 0.5)
    )
    assert rows.count('class="right"') == 3
    assert rows.count('class="wrong"') == 1
    assert rows.count('class="as"') == 1
    assert rows.count("50%") == 4
    assert rows.count("<img") == 2 + 4 + 1


def test_the_map_shows_every_image_within_its_frame(images):
    text = embedding_map(images.images, torch.randn(60, 5), images.labels)
    places = [float(x) for x in re.findall(r"(?:left|top):([\d.]+)%", text)]
    assert len(places) == 120
    assert min(places) == 4
    assert max(places) == 96


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
    ):
        assert draw() == draw()
        assert draw().startswith("<svg")
    assert "purity" not in training_plot(rows)


def test_text_from_outside_is_escaped():
    text = page("<b>", "a & b", [Part("<i>", "<u>", "<p>kept</p>")], "<s>")
    assert "<b>" not in text
    assert "&lt;i&gt;" in text
    assert "<p>kept</p>" in text
    assert "&lt;x&gt;" in number_table(["<x>"], [["1"]])
    assert 'class="strong"' not in number_table(["x"], [["1"]])
    assert 'class="strong"' in number_table(["x"], [["1"]], strong=0)


def test_a_browser_draws_the_page(html, tmp_path):
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
    pixels = np.asarray(Image.open(tmp_path / "page.png").convert("RGB")).astype(int)
    blue = np.abs(pixels - np.array([0x25, 0x63, 0xA8])).sum(axis=2) < 12
    red = np.abs(pixels - np.array([0xD0, 0x34, 0x2C])).sum(axis=2) < 12
    assert blue.sum() > 200  # plot and frames of the supports
    assert red.sum() > 50  # pixels cannot classify noise: some queries are wrong
