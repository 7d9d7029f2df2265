"""The page of classified pictures: what it shows, in which order, and its filters."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import psco
from psco.classifier.bulk import classify_files, list_image_files
from psco.classifier.results import Row
from psco.recipes.recipe import load_recipe
from psco.report.classified import ContactSheet


@pytest.fixture
def clf(tiny) -> psco.FewShotClassifier:
    """Return a classifier of black and white images."""
    encoder = psco.Encoder.untrained(load_recipe("glyphs", [*tiny, "heads.predictor=false"]))
    pixels = np.stack([np.full((16, 16), shade, np.uint8) for shade in (0, 255)])
    return psco.FewShotClassifier(encoder).fit(pixels, ["black", "white"])


@pytest.fixture
def folder(tmp_path):
    """Draw pictures in folders named after classes, and a file that is not a picture."""
    for name in ("black", "white", "other"):
        (tmp_path / "shades" / name).mkdir(parents=True)
        for number, shade in enumerate((0, 20, 230)):
            path = tmp_path / "shades" / name / f"<{number}>.png"
            Image.new("L", (20, 20), shade).save(path)
    (tmp_path / "shades" / "other" / "broken.png").write_bytes(b"")
    return tmp_path / "shades"


def sheet_of(clf, listing, rows, folder=None) -> str:
    sheet = ContactSheet(clf, listing)
    assert list(sheet.watch(rows)) == rows
    return sheet.page("shades.psco", folder)


def figures(text: str) -> list[str]:
    return re.findall(r'<figure class="card (\w+)"', text)


def test_only_labels_that_agree_with_their_folder_are_marked_as_right(clf, folder):
    listing = list_image_files([folder])
    rows = list(classify_files(clf, listing))
    rows[-1] = rows[-1]._replace(
        label="unknown", probability=None, runner_up="white", runner_up_probability=0.6
    )
    text = sheet_of(clf, listing, rows)
    expected = []
    for row in rows:
        truth = Path(row.path).parent.name
        if row.label == "unknown":
            expected.append("unknown")
        elif not row.error:
            agrees = "agrees" if truth == row.label else "differs"
            expected.append("plain" if truth == "other" else agrees)
    assert sorted(figures(text)) == sorted(expected)
    assert {"plain", "agrees", "differs", "unknown"} == set(expected)
    assert "white? 60%" in text


def test_the_page_shows_every_picture_with_its_support_and_the_broken_files(clf, folder):
    listing = list_image_files([folder])
    text = sheet_of(clf, listing, list(classify_files(clf, listing)))
    assert text.count("<img") == 9 * 2  # and the nearest support of each
    assert "1 file could not be decoded" in text
    assert "the file is empty" in text
    assert "10 pictures, classified by shades.psco" in text
    assert "&lt;0&gt;.png" in text
    assert "<0>.png" not in text
    for address in re.findall(r'(?:src|href)="([^"]*)"', text):
        assert address.startswith("data:"), address


def test_pictures_come_before_the_counts(clf, folder):
    listing = list_image_files([folder])
    text = sheet_of(clf, listing, list(classify_files(clf, listing)))
    assert text.index("<figure") < text.index("<aside>")


def test_the_page_links_to_the_files_relative_to_its_folder(clf, folder, tmp_path):
    listing = list_image_files([folder])
    (tmp_path / "pages").mkdir()
    text = sheet_of(clf, listing, list(classify_files(clf, listing)), tmp_path / "pages")
    assert 'href="../shades/black/%3C0%3E.png"' in text
    assert len(re.findall(r'href="\.\./shades/', text)) == 9


def test_folders_count_only_if_the_classifier_has_a_class_of_that_name(clf, folder):
    single = list_image_files([folder / "black" / "<0>.png", folder / "other" / "<2>.png"])
    rows = [Row(name, "white", 0.9, "black", 0.1) for name in single.files]
    text = sheet_of(clf, single, rows)
    assert "The folders name the class of 1 picture; 0 labels agree" in text
    assert sorted(figures(text)) == ["differs", "plain"]


def many_rows(folder, number: int):
    listing = list_image_files([folder / "other" / "<0>.png"])
    listing = replace(listing, files=listing.files * number)
    chances = np.random.default_rng(0).uniform(0.5, 1, number).tolist()
    rows = [
        Row(path, "white", chance, "black", 1 - chance)
        for path, chance in zip(listing.files, chances, strict=True)
    ]
    return listing, rows, sorted(chances)


def test_of_many_pictures_the_least_probable_are_shown_and_all_others_are_listed(clf, folder):
    listing, rows, chances = many_rows(folder, 900)
    text = sheet_of(clf, listing, rows)
    assert len(figures(text)) == 600
    shown = [float(chance) for chance in re.findall(r'data-chance="([\d.]+)"', text)]
    assert shown == pytest.approx(chances, abs=1e-4)
    assert "300 more files, without pictures" in text
    assert text.count("<tr data-label") == 300


def test_memory_is_limited_and_the_page_states_what_it_leaves_out(clf, folder, monkeypatch):
    monkeypatch.setattr("psco.report.classified._LISTED", 700)
    listing, rows, chances = many_rows(folder, 3000)
    sheet = ContactSheet(clf, listing)
    assert max(len(sheet._cards) for _ in sheet.watch(rows)) <= 1400
    text = sheet.page("many")
    assert "2300 of the most certain pictures are not on this page" in text
    shown = [float(chance) for chance in re.findall(r'data-chance="([\d.]+)"', text)]
    assert shown == pytest.approx(chances[:700], abs=1e-4)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, 4),
        ({"label": "white"}, 2),
        ({"doubt": "0.9"}, 3),
        ({"doubt": "0.6"}, 2),
        ({"doubt": "unknown"}, 1),
        ({"doubt": "differs"}, 1),
        ({"label": "black", "doubt": "0.9"}, 1),
    ],
)
def test_the_filters_show_the_pictures_of_a_class_or_with_doubt(
    clf, folder, browser, filters, expected
):
    listing = list_image_files([folder / "black"])
    listing = replace(listing, files=[*listing.files, listing.files[0]])
    rows = [
        Row("black/0.png", "white", 0.95, "black", 0.05),
        Row("black/1.png", "black", 0.7, "white", 0.3),
        Row("black/2.png", "unknown", None, "white", 0.4),
        Row("elsewhere/3.png", "white", 0.55, "black", 0.45),
    ]
    choose = "".join(
        f"document.querySelector('input[name={name}][value=\"{value}\"]').click();"
        for name, value in filters.items()
    )
    probe = (
        f"<script>{choose}document.title = "
        "document.querySelectorAll('figure:not([hidden])').length</script></body>"
    )
    text = browser(sheet_of(clf, listing, rows).replace("</body>", probe), "--dump-dom")
    assert int(re.search(r"<title>(\d+)</title>", text)[1]) == expected


def test_a_browser_draws_the_page(clf, folder, screenshot, count):
    listing = list_image_files([folder])
    rows = list(classify_files(clf, listing))
    pixels = screenshot(sheet_of(clf, listing, rows))
    assert count(pixels, "2e8b57") > 200  # labels that agree with their folders
    assert count(pixels, "c9302c") > 200  # labels that differ
    assert count(pixels, "2563a8") > 200  # bars
