"""``psco data …`` and what depends on data sets by name, in processes of their own."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest
from PIL import Image


def png(seed: int, size: int = 24) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def eurosat(tmp_path):
    """Make a EuroSAT of three classes with eight images each, as one archive."""
    (tmp_path / "data" / "eurosat").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "data" / "eurosat" / "eurosat.zip", "w") as file:
        for place, name in enumerate(("Forest", "River", "SeaLake")):
            for number in range(8):
                file.writestr(f"{name}/{name}_{number}.png", png(10 * place + number))
    return tmp_path / "data"


def test_list_names_every_data_set_and_whether_it_is_present(psco, eurosat):
    rows = json.loads(psco("data", "list", "--root", eurosat, "--json").stdout)
    here = {row["name"]: row["here"] for row in rows}
    assert len(here) == 12
    assert here["glyphs"]
    assert here["eurosat"]
    assert not here["omniglot"]
    assert "satellite" in psco("data", "list").stdout


def test_info_tells_the_expected_files(psco):
    assert "Data_Entry_2017.csv" in psco("data", "info", "chestx").stdout
    assert json.loads(psco("data", "info", "omniglot", "--json").stdout)["download"]
    wrong = psco("data", "info", "omniglott")
    assert wrong.returncode == 2
    assert "did you mean 'omniglot'" in wrong.stderr


def test_prepare_and_evaluate_work_on_a_benchmark_by_name(psco, eurosat, tiny, pictures, tmp_path):
    done = psco("data", "prepare", "eurosat", "--root", eurosat, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{"split": "test", "classes": 3, "images": 24}]
    import psco as package

    package.pretrain(
        pictures, out=tmp_path / "run", recipe="glyphs", overrides=tiny, progress=False
    )
    done = psco("evaluate", tmp_path / "run", "--data", "eurosat", "--root", eurosat,
                "--ways", 3, "--queries", 4, "--tasks", 10, "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["data"] == "eurosat"


def test_verify_finds_what_is_missing_and_exits_with_1(psco, eurosat):
    done = psco("data", "verify", "eurosat", "--root", eurosat)
    assert done.returncode == 1
    assert "the complete data set has 10 classes and 27,000" in done.stdout
    assert psco("data", "verify", "cub", "--root", eurosat).returncode == 1


def test_a_missing_data_set_is_reported_with_its_folder_and_files(psco, tmp_path):
    done = psco("pretrain", "omniglot", "--root", tmp_path, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert "images_background" in done.stderr
    assert not (tmp_path / "run").exists()


def test_download_names_the_source_of_what_it_may_not_fetch(psco, tmp_path):
    done = psco("data", "download", "cub", "--root", tmp_path)
    assert done.returncode == 2
    assert "cannot be downloaded automatically (only omniglot, eurosat can)" in done.stderr
    assert str(tmp_path / "cub") in done.stderr


def test_check_reports_bad_files_and_what_pretrain_will_do(psco, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(20):
        (folder / f"{number}.png").write_bytes(png(number % 19))
    (folder / "bad.jpg").write_bytes(b"no picture")
    done = psco("data", "check", folder, "--out", tmp_path)
    assert done.returncode == 1
    assert "21 images" in done.stdout
    assert "same content: 0.png, 19.png" in done.stdout
    assert "pretrain will stop" in done.stdout
    assert (tmp_path / "bad_files.txt").read_text().startswith("bad.jpg\t")
    found = json.loads(psco("data", "check", folder, "--out", tmp_path, "--json").stdout)
    assert list(found["bad"]) == ["bad.jpg"]


def test_pretrain_skips_bad_files_up_to_the_allowed_fraction(psco, tmp_path, tiny):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.png").write_bytes(png(number))
    (folder / "bad.png").write_bytes(b"no picture")
    words = ["pretrain", folder, "--recipe", "own-images", "--set", *tiny, "--steps", 2]
    refused = psco(*words, "--out", tmp_path / "a")
    assert refused.returncode == 2
    assert "bad.png" in refused.stderr
    assert "--max-bad" in refused.stderr
    allowed = psco(*words, "--out", tmp_path / "b", "--max-bad", "5%")
    assert allowed.returncode == 0, allowed.stderr
    assert "bad.png" in allowed.stderr
    wrong = psco(*words, "--out", tmp_path / "c", "--max-bad", "many")
    assert "--max-bad takes a fraction such as 1% or 0.01, not 'many'" in wrong.stderr
