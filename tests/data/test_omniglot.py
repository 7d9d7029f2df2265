"""Omniglot: splits, rotations, cache, and errors for damaged copies."""

from __future__ import annotations

import io
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from psco.data import has_splits, load_dataset
from psco.data.sets import omniglot
from psco.data.sets.omniglot import RotatedImages, load_omniglot, split_characters
from psco.errors import InputError, PscoError
from psco.recipes.recipe import default_recipe

# The numbers of characters of the val alphabets are the real ones; two alphabets stand for the
# other 25 of the first part and the 20 of the second.
ALPHABETS = {
    "images_background": {
        "Alphabet_of_the_Magi": 792,
        "Armenian": 41,
        "Bengali": 46,
        "Early_Aramaic": 22,
        "Hebrew": 22,
        "Mkhedruli_(Georgian)": 41,
    },
    "images_evaluation": {"Angelic": 236, "Keble": 423},
}
DRAWINGS = 2


def drawing(seed: int, side: int = 105) -> bytes:
    ink = np.random.default_rng(seed).random((side, side)) < 0.08
    content = io.BytesIO()
    Image.fromarray(~ink).save(content, "PNG")
    return content.getvalue()


def write_zips(folder: Path, alphabets: dict[str, dict[str, int]] = ALPHABETS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pool = [drawing(seed) for seed in range(50)]
    for part, counts in alphabets.items():
        with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
            number = 0
            for alphabet, characters in counts.items():
                for character in range(1, characters + 1):
                    for repeat in range(1, DRAWINGS + 1):
                        name = f"character{character:03}/{number:04}_{repeat:02}.png"
                        archive.writestr(f"{part}/{alphabet}/{name}", pool[number % len(pool)])
                        number += 1
    return folder


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of Omniglot with all characters, two drawings each, as two zip files."""
    return write_zips(tmp_path_factory.mktemp("data") / "omniglot")


@pytest.fixture(scope="module")
def real() -> Path:
    folder = Path(os.environ.get("PSCO_DATA", "")) / "omniglot"
    if "PSCO_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("needs Omniglot: set PSCO_DATA to the folder that holds omniglot/")
    return folder


@pytest.mark.parametrize(("split", "characters"), [("train", 1028), ("val", 172), ("test", 423)])
def test_every_rotation_of_a_character_is_a_separate_class(copy, split, characters):
    images = load_omniglot(split, copy)
    assert len(images.classes) == len(set(images.classes)) == 4 * characters
    assert images.images.shape == (4 * characters * DRAWINGS, 105, 105, 1)
    assert np.array_equal(np.bincount(images.labels), np.full(4 * characters, DRAWINGS))
    assert (images.name, images.split, images.labels.dtype) == ("omniglot", split, np.int64)


def test_without_rotations_a_class_is_a_character(copy):
    images = load_omniglot("val", copy, rotations=False)
    assert len(images.classes) == 172
    assert images.classes[0] == "Armenian/character001"


def test_the_val_split_is_five_whole_alphabets_and_the_test_split_the_last_characters(copy):
    val, test = (load_omniglot(split, copy, rotations=False) for split in ("val", "test"))
    assert {name.split("/")[0] for name in val.classes} == set(omniglot.VAL_ALPHABETS)
    assert {name.split("/")[0] for name in test.classes} == {"Keble"}


def test_rotated_classes_are_the_same_drawings_rotated(copy):
    images = load_omniglot("val", copy)
    upright = images.images[images.labels == images.classes.index("Hebrew/character003/rot000")]
    assert set(np.unique(upright)) == {0, 255}
    for turn in (1, 2, 3):
        label = images.classes.index(f"Hebrew/character003/rot{90 * turn:03}")
        turned = images.images[images.labels == label]
        np.testing.assert_array_equal(turned, np.rot90(upright, turn, axes=(1, 2)))


def test_pixels_are_those_of_the_files(copy):
    with zipfile.ZipFile(copy / "images_background.zip") as archive:
        name = next(n for n in archive.namelist() if "/Bengali/" in n)
        pixels = np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("L"))
    images = load_omniglot("val", copy, rotations=False)
    first = images.images[int(np.flatnonzero(images.labels == 41)[0])]
    np.testing.assert_array_equal(first[..., 0], pixels)


def test_unpacked_folders_equal_the_archives(copy, tmp_path):
    for part in omniglot.PARTS:
        shutil.unpack_archive(copy / f"{part}.zip", tmp_path)
    packed, unpacked = load_omniglot("val", copy, size=28), load_omniglot("val", tmp_path, size=28)
    assert packed.classes == unpacked.classes
    np.testing.assert_array_equal(packed.images[::7], unpacked.images[::7])


def test_another_size_keeps_the_ink(copy):
    original = load_omniglot("val", copy)
    for size in (53, 28, 112):
        small = load_omniglot("val", copy, size=size)
        assert small.images.shape[1:] == (size, size, 1)
        assert abs(small.images[:50].mean() - original.images[:50].mean()) < 1
        assert np.any((small.images[:50] > 0) & (small.images[:50] < 255))  # greys


def test_three_channels_are_equal(copy):
    images = load_omniglot("val", copy, channels=3)
    assert images.images.shape[3] == images.channels == 3
    batch = images.images[np.array([5, 900])]
    assert batch.shape == (2, 105, 105, 3)
    np.testing.assert_array_equal(batch[..., 0], batch[..., 2])


indices = st.one_of(
    st.integers(-12, 11),
    st.slices(12),
    arrays.arrays(
        np.int64, st.one_of(st.integers(0, 20), st.just((3, 2))), elements=st.integers(-12, 11)
    ),
    arrays.arrays(bool, 12),
    st.lists(st.integers(0, 11), min_size=1, max_size=4),
    st.just(Ellipsis),
)


@given(index=indices, packed=st.booleans(), channels=st.sampled_from([1, 3]))
@settings(deadline=None)
def test_rotated_images_index_like_an_array(index, packed, channels):
    rng = np.random.default_rng(0)
    pixels = np.where(rng.random((5, 11, 11)) < 0.5, 0, 255).astype(np.uint8)
    base = np.packbits(pixels > 0, axis=2) if packed else pixels
    shown, turns = rng.integers(0, 5, 12), rng.integers(0, 4, 12)
    lazy = RotatedImages(base, shown, turns, channels)
    loops = [np.rot90(pixels[s], t) for s, t in zip(shown, turns, strict=True)]
    array = np.repeat(np.stack(loops)[..., None], channels, axis=3)
    np.testing.assert_array_equal(lazy[index], array[index])
    assert lazy[index].shape == array[index].shape
    assert lazy[index].dtype == np.uint8


def test_rotated_images_convert_to_an_array():
    lazy = RotatedImages(np.zeros((2, 9, 9), np.uint8), np.arange(2), np.arange(2))
    assert len(lazy) == 2
    assert np.asarray(lazy).shape == lazy.shape
    assert np.asarray(lazy, dtype=np.float32).dtype == np.float32
    with pytest.raises(IndexError):
        lazy[2]


def test_the_scheme_paper_draws_1200_100_and_323_characters_by_seed():
    characters = [f"part/alphabet/{number}" for number in range(1623)]
    drawn = split_characters(characters, "paper", 0)
    assert [len(drawn[split]) for split in ("train", "val", "test")] == [1200, 100, 323]
    assert sorted(c for part in drawn.values() for c in part) == list(range(1623))
    assert drawn == split_characters(characters, "paper", 0)
    assert drawn != split_characters(characters, "paper", 1)
    assert drawn["val"][:5] == [15, 42, 48, 60, 64]  # the same on any machine


def test_the_scheme_reaches_the_classes(copy):
    classes = [len(load_omniglot(s, copy, scheme="paper").classes) for s in omniglot.SPLITS]
    assert classes == [4800, 400, 1292]


@pytest.mark.parametrize(("split", "characters"), [("train", 1200), ("val", 100), ("test", 323)])
def test_the_split_of_the_papers_text_has_a_name(copy, split, characters):
    images = load_dataset("omniglot:paper", split, copy)
    assert images.classes == load_omniglot(split, copy, scheme="paper").classes
    assert len(images.classes) == 4 * characters
    assert (images.name, images.split) == ("omniglot:paper", split)
    assert has_splits("omniglot:paper")
    assert default_recipe("omniglot:paper") == "omniglot"


def test_an_unknown_split_scheme_suggests_the_known_one(copy):
    with pytest.raises(InputError, match="did you mean 'omniglot:paper'"):
        load_dataset("omniglot:papr", "train", copy)


def test_a_second_call_reads_the_cache_only(copy, monkeypatch):
    first = load_omniglot("val", copy, size=28)
    monkeypatch.setattr(omniglot, "open_source", lambda path: pytest.fail(f"opened {path}"))
    again = load_omniglot("val", copy, size=28)
    np.testing.assert_array_equal(first.images[:40], again.images[:40])


@pytest.mark.parametrize("end", [".json", "-105.npy", "-28.npy"])
def test_a_damaged_cache_file_is_rebuilt(copy, tmp_path, monkeypatch, end):
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path))
    before = load_omniglot("val", copy, size=28).images[:40]
    (file,) = tmp_path.glob(f"*{end}")
    os.truncate(file, 100 if end == "-28.npy" else 0)
    np.testing.assert_array_equal(load_omniglot("val", copy, size=28).images[:40], before)


def test_a_changed_archive_is_read_again(copy, tmp_path):
    changed = shutil.copytree(copy, tmp_path / "omniglot")
    load_omniglot("val", changed)
    write_zips(changed, {"images_evaluation": {"Angelic": 236, "Keble": 422}})
    with pytest.raises(InputError, match="1623 characters, this copy has 1622"):
        load_omniglot("val", changed)


def test_a_cache_that_cannot_be_written_is_an_error(copy, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "file"))
    with pytest.raises(PscoError, match="set PSCO_CACHE"):
        load_omniglot("val", copy)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"split": "trian"}, "did you mean 'train'"),
        ({"scheme": "vinyal"}, "did you mean 'vinyals'"),
        ({"scheme": "paper", "seed": -1}, "0 to 2"),
        ({"size": 257}, "from 8 to 256 for omniglot, not 257"),
        ({"channels": 2}, "1 or 3"),
    ],
)
def test_a_wrong_argument_is_an_input_error(copy, arguments, words):
    with pytest.raises(InputError, match=words):
        load_omniglot(root=copy, **arguments)


def test_a_wrong_root_is_an_error_with_what_was_expected_and_found(tmp_path):
    (tmp_path / "images_background").mkdir()
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(InputError) as caught:
        load_omniglot(root=tmp_path)
    for words in ("images_evaluation", "holiday.jpg", str(tmp_path), "PSCO_DATA", ".zip"):
        assert words in str(caught.value)


def test_a_damaged_archive_is_an_input_error(copy, tmp_path):
    damaged = shutil.copytree(copy, tmp_path / "omniglot")
    file = damaged / "images_evaluation.zip"
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(InputError, match="zip"):
        load_omniglot(root=damaged)


@pytest.mark.parametrize(("content", "words"), [(drawing(0, 28), "28"), (b"GIF89a", "cannot use")])
def test_a_file_that_is_not_a_drawing_is_an_input_error(copy, tmp_path, content, words):
    shutil.copytree(copy, tmp_path, dirs_exist_ok=True)
    with zipfile.ZipFile(tmp_path / "images_evaluation.zip", "a") as archive:
        archive.writestr("images_evaluation/Keble/character001/bad.png", content)
    with pytest.raises(InputError, match=words) as caught:
        load_omniglot(root=tmp_path)
    assert "Keble/character001/bad.png" in str(caught.value)


def test_the_real_data_have_the_known_counts_and_ink(real):
    whole = [load_omniglot(split, real, rotations=False) for split in omniglot.SPLITS]
    assert [len(part.classes) for part in whole] == [1028, 172, 423]
    assert sum(map(len, whole)) == 32_460
    assert {name.split("/")[0] for name in whole[1].classes} == set(omniglot.VAL_ALPHABETS)
    assert whole[2].classes[0] == "Gurmukhi/character42"
    assert whole[2].classes[-1] == "ULOG/character26"
    turned = [load_omniglot(split, real) for split in omniglot.SPLITS]
    assert [len(part.classes) for part in turned] == [4112, 688, 1692]
    batch = turned[0].images[np.random.default_rng(0).integers(0, len(turned[0]), 2000)]
    assert 0.07 < np.mean(batch == 0) < 0.09
