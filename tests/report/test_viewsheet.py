"""The sheet of views, from Python and from the command line, and the pages about views."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import psco as package
from psco.recipes.recipe import load_recipe, recipe_names
from psco.report.viewsheet import contact_sheet
from psco.views import VIEW_PARTS

DOCS = Path(__file__).parents[2] / "docs"
OWN = [name for name in recipe_names() if name.startswith("own-")]


@pytest.fixture
def folder(tmp_path):
    """Make a folder of twelve pictures with a bright bar at different places."""
    (tmp_path / "images").mkdir()
    for number in range(12):
        pixels = np.full((40, 50, 3), 90, dtype=np.uint8)
        pixels[3 * number : 3 * number + 6, 10:40] = (250, 20 * number, 30)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    return tmp_path / "images"


@pytest.mark.parametrize("recipe", OWN)
def test_every_recipe_for_own_images_draws_a_sheet_of_a_folder(folder, tmp_path, recipe):
    sheet = package.view_sheet(folder, recipe=recipe, images=3, views=2, progress=False)
    assert sheet.recipe == package.load_recipe(recipe)
    assert set(sheet.blank) == {"view_a", "view_b"}
    path = sheet.save(tmp_path / "deep" / "sheet.png")
    with Image.open(path) as picture:
        assert picture.size == sheet.picture.size
        assert np.asarray(picture).std() > 10


def test_a_sheet_of_several_online_views_has_as_many_samples(folder):
    options = {"recipe": "own-images", "images": 3, "views": 4, "progress": False}
    two = package.view_sheet(folder, **options)
    changes = ["views.count=4", "views.shared_flip=0.5"]
    four = package.view_sheet(folder, overrides=changes, **options)
    assert four.picture.size == two.picture.size
    assert np.asarray(four.picture).std() > 10


def test_a_sheet_has_a_row_for_each_image_and_samples_of_both_views(folder):
    def size(images: int, views: int) -> tuple[int, int]:
        sheet = package.view_sheet(
            folder, recipe="own-images", images=images, views=views, progress=False
        )
        return sheet.picture.size

    width, height = size(2, 3)
    wider, same = size(2, 5)
    assert same == height
    assert wider - width == 2 * 2 * (84 + 4)  # two samples more of each view, and the gaps
    _, taller = size(5, 3)
    assert taller - height == 3 * (84 + 4)
    assert size(40, 3)[1] - height == 10 * (84 + 4)  # no more rows than images


def test_the_seed_decides_the_sheet(folder):
    def pixels(seed: int) -> np.ndarray:
        sheet = package.view_sheet(folder, seed=seed, images=3, views=2, progress=False)
        return np.asarray(sheet.picture)

    assert np.array_equal(pixels(1), pixels(1))
    assert not np.array_equal(pixels(1), pixels(2))


def test_pictures_are_below_their_captions():
    red = np.zeros((2, 84, 84, 3), np.uint8)
    red[..., 0] = 255
    green = np.zeros((2, 28, 28, 3), np.uint8)
    green[..., 1] = 200
    sheet = np.asarray(contact_sheet({"red": [red], "green": [green, green]}))
    assert (sheet == (255, 0, 0)).all(2).sum() == 2 * 84 * 84
    assert (sheet == (0, 200, 0)).all(2).sum() == 4 * 84 * 84  # enlarged threefold


def test_the_command_writes_the_sheet(psco, folder, tmp_path):
    out = tmp_path / "sheet.png"
    options = ["--images", 2, "--views", 2, "--set", "views.view_a.flip=null"]
    done = psco("views", folder, "--recipe", "own-images", "-o", out, *options, "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["sheet"] == str(out)
    assert all(0 <= facts["blank"][view] < 0.5 for view in ("view_a", "view_b"))
    with Image.open(out) as picture:
        assert picture.format == "PNG"


def test_the_command_takes_named_data_sets_and_notes_parts_without_effect(psco, tmp_path):
    out = tmp_path / "glyphs.png"
    done = psco("views", "glyphs", "-o", out, "--images", 2, "--set", "views.view_a.grey={}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}: views of a single colour: 0.0% of view_a, 0.0% of view_b\n"
    assert "the part grey of view_a has no effect on images with one channel" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "sheet.txt"], r"a \.png, .* file, got 'sheet\.txt'; use \.png"),
        (["-o", "s.png", "--images", "0"], "images must be at least 1, got 0"),
        (["-o", "s.png", "--views", "-1"], "views must be at least 1, got -1"),
        (["-o", "s.png", "--recipe", "own-drawing"], "did you mean 'own-drawings'"),
        (["-o", "s.png", "--set", "views.view_a.elastik={}"], "did you mean 'elastic'"),
        (["-o", "s.png", "--set", "views.view_a.crop.scale=[0.1, 2]"], "crop: scale must be 0 <"),
        (["-o", "s.png", "--set", "views.view_b={stroke: {amount: [-4, -4]}}"], "view_b: 100% of"),
    ],
)
def test_bad_input_gives_one_line_and_no_file(psco, tmp_path, words, message):
    done = psco("views", "glyphs", *words, cwd=tmp_path)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert re.search(message, errors[0])
    assert list(tmp_path.iterdir()) == []


# --- the pages --------------------------------------------------------------------------------


def test_the_page_about_views_names_every_part_its_options_and_its_picture():
    text = (DOCS / "views.md").read_text()
    for name in VIEW_PARTS:
        section = text.partition(f"\n## `{name}`")[2].partition("\n## ")[0]
        assert section, name
        assert f"(views/{name}.png)" in section
        assert (DOCS / "views" / f"{name}.png").is_file()
        for field in fields(VIEW_PARTS[name]()):
            assert f"`{field.name}`" in section, f"{name}.{field.name}"


def test_the_page_about_choosing_views_names_every_part_and_only_what_exists():
    text = (DOCS / "choosing-views.md").read_text()
    assert {name for name in VIEW_PARTS if f"`{name}`" in text} == set(VIEW_PARTS)
    for picture in re.findall(r"!\[.*\]\((.*)\)", text):
        assert (DOCS / picture).is_file()
    settings = re.findall(r'"(views\..*?)"', text) + re.findall(r"--set (train[\w.=]+)", text)
    assert len(settings) >= 4
    load_recipe("glyphs", settings)
    for name in re.findall(r"`(own-\w+)`", text) + re.findall(r"--recipe (\S+)", text):
        load_recipe(name)


def test_the_pictures_of_the_page_can_be_rendered_again(tmp_path):
    script = DOCS / "render_views.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=300)
    assert {file.stem for file in tmp_path.iterdir()} == set(VIEW_PARTS)
    assert {file.stem for file in (DOCS / "views").iterdir()} == set(VIEW_PARTS)
