"""Data sets by name: descriptions, roots, splits and verification."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from psco.data.sets.benchmarks import load_benchmark, verify
from psco.data.sets.catalogue import benchmark_names, describe
from psco.errors import InputError

CLASSES = ["AnnualCrop", "Forest", "River"]


def picture() -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (64, 64), (10, 200, 30)).save(content, "JPEG")
    return content.getvalue()


@pytest.fixture
def eurosat(tmp_path: Path) -> Path:
    """Return a folder of data sets with a few images of EuroSAT."""
    for name in CLASSES:
        (tmp_path / "eurosat" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "eurosat" / name / f"{name}_{number}.jpg").write_bytes(picture())
    return tmp_path


def test_the_table_has_the_data_sets_of_the_paper():
    assert benchmark_names() == [
        "omniglot",
        "miniimagenet",
        "cub",
        "cars",
        "places",
        "plantae",
        "cropdiseases",
        "eurosat",
        "isic",
        "chestx",
        "imagenet",
    ]


@pytest.mark.parametrize("name", benchmark_names())
def test_every_description_is_one_line(name):
    about = describe(name)
    for text in (about.title, about.source, about.files):
        assert text
        assert "\n" not in text
    assert about.channels in (1, 3)
    assert all(classes >= 2 for classes, _ in about.splits.values())


def test_an_unknown_name_is_an_input_error_with_the_nearest_one():
    for function in (describe, verify, load_benchmark):
        with pytest.raises(InputError, match="did you mean 'eurosat'"):
            function("eurosad")


def test_size_and_channels_have_defaults(eurosat):
    assert load_benchmark("eurosat", root=eurosat).images.shape == (12, 84, 84, 3)
    small = load_benchmark("eurosat", "all", eurosat, 10, 1)
    assert small.images.shape == (12, 10, 10, 1)


@pytest.mark.parametrize(("size", "channels"), [(0, 3), (-4, 3), (8, 2)])
def test_an_impossible_size_is_an_input_error(eurosat, size, channels):
    with pytest.raises(InputError, match="size must be at least 1 and channels 1 or 3"):
        load_benchmark("eurosat", root=eurosat, size=size, channels=channels)


def test_further_arguments_reach_the_loader(eurosat):
    (eurosat / "classes.json").write_text('["Forest", "River"]')
    chosen = load_benchmark("eurosat", root=eurosat, size=8, class_list=eurosat / "classes.json")
    assert chosen.classes == ("Forest", "River")


def test_the_root_is_the_folder_or_its_parent_or_set_by_the_environment(eurosat, monkeypatch):
    above = load_benchmark("eurosat", root=eurosat, size=8)
    itself = load_benchmark("eurosat", root=str(eurosat / "eurosat"), size=8)
    monkeypatch.setenv("PSCO_DATA", str(eurosat))
    by_environment = load_benchmark("eurosat", size=8)
    for other in (itself, by_environment):
        np.testing.assert_array_equal(above.images, other.images)


@pytest.mark.parametrize("name", benchmark_names())
def test_without_a_root_the_error_says_how_to_set_it(name, monkeypatch):
    monkeypatch.delenv("PSCO_DATA", raising=False)
    with pytest.raises(InputError) as caught:
        load_benchmark(name, "val" if name == "imagenet" else "test")
    about = describe(name)
    for words in ("PSCO_DATA", "--root", "root= in Python", about.files, about.source):
        assert words in str(caught.value)


@pytest.mark.parametrize("name", [n for n in benchmark_names() if n != "eurosat"])
def test_one_data_set_is_never_mistaken_for_another(name, eurosat):
    folder = describe(name).folder or name
    with pytest.raises(InputError, match=rf"no {folder}/ in .* found 'eurosat';"):
        load_benchmark(name, "val" if name == "imagenet" else "test", eurosat)


@pytest.mark.parametrize("name", benchmark_names())
def test_a_root_that_does_not_exist_is_an_input_error(name, tmp_path):
    with pytest.raises(InputError, match="found nothing"):
        load_benchmark(name, "val" if name == "imagenet" else "test", tmp_path / "absent")


@pytest.mark.parametrize("name", benchmark_names())
def test_an_unknown_split_is_an_input_error(name, eurosat):
    with pytest.raises(InputError, match=f"unknown split of {name} 'tests'.*known: "):
        load_benchmark(name, "tests", eurosat)


def test_verify_accepts_a_complete_copy(tmp_path):
    with zipfile.ZipFile(tmp_path / "cropdiseases.zip", "w") as archive:
        for number in range(38):
            archive.writestr(f"class{number:02}/1.jpg", picture())
    findings = verify("cropdiseases", tmp_path)
    assert all(finding.ok for finding in findings)
    assert findings[-1].text == "test: 38 classes, 38 images"


def test_verify_reports_incomplete_splits(eurosat):
    findings = verify("eurosat", eurosat)
    assert [finding.ok for finding in findings] == [True, False]
    assert (
        findings[1].text
        == "test: 3 classes, 12 images; the complete data set has 10 classes and 27,000 images"
    )


def test_verify_names_an_image_that_cannot_be_decoded(eurosat):
    (eurosat / "eurosat" / "Forest" / "Forest_2.jpg").write_bytes(picture()[:100])
    (finding,) = [finding for finding in verify("eurosat", eurosat) if not finding.ok]
    assert "Forest_2.jpg" in finding.text


@pytest.mark.parametrize("name", benchmark_names())
def test_verify_turns_missing_files_into_findings(name, tmp_path):
    for root in (tmp_path / "absent", tmp_path):
        findings = verify(name, root)
        assert not findings[-1].ok
        assert describe(name).files in findings[-1].text


def test_verify_finds_the_real_omniglot_and_miniimagenet_complete():
    root = Path(os.environ.get("PSCO_DATA", ""))
    names = [n for n in ("omniglot", "miniimagenet") if (root / (describe(n).folder or n)).is_dir()]
    if "PSCO_DATA" not in os.environ or not names:
        pytest.skip("needs real data: set PSCO_DATA to the folder that holds them")
    for name in names:
        assert [finding for finding in verify(name, root) if not finding.ok] == []
