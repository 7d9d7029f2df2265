"""The built-in glyphs: reproducible, legible, about as hard as Omniglot, cached."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from psco.data.sets import glyphs
from psco.data.sets.glyphs import ALPHABETS, CHARACTERS, DRAWINGS, draw_glyphs, load_glyphs
from psco.errors import InputError


@pytest.fixture(scope="module")
def drawn() -> np.ndarray:
    """Four drawings of each character of the test split, (300, 4, 28, 28)."""
    return draw_glyphs(ALPHABETS["test"], 0, drawings=4)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, for splits of one alphabet each."""
    monkeypatch.setenv("PSCO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(glyphs, "ALPHABETS", {"train": range(1), "val": range(1, 2)})
    return tmp_path / "cache"


def accuracy(images: np.ndarray, way: int, cosine: bool, episodes: int = 400) -> float:
    """Return the 1-shot accuracy of the nearest neighbour on raw pixels, ink being 1."""
    ink = 1 - images.reshape(*images.shape[:2], -1) / 255
    if cosine:
        ink /= np.linalg.norm(ink, axis=2, keepdims=True)
    rng, hits = np.random.default_rng(0), []
    for _ in range(episodes):
        classes = rng.choice(len(ink), way, replace=False)
        pairs = rng.permuted(np.tile(np.arange(ink.shape[1]), (way, 1)), axis=1)[:, :2]
        shots, queries = ink[classes, pairs[:, 0]], ink[classes, pairs[:, 1]]
        nearest = ((queries**2).sum(1)[:, None] - 2 * queries @ shots.T + (shots**2).sum(1)).argmin(
            1
        )
        hits.append(np.mean(nearest == np.arange(way)))
    return float(np.mean(hits))


def cropped_and_blurred(image: np.ndarray) -> np.ndarray:
    ink = Image.fromarray(255 - image).crop(Image.fromarray(image < 128).getbbox())
    framed = ImageOps.expand(ink.resize((14, 14), Image.Resampling.BOX), border=2)
    return 255 - np.asarray(framed.filter(ImageFilter.GaussianBlur(1.2)))


def test_the_same_seed_draws_the_same_images():
    once, again = (draw_glyphs([3, 5], 7, characters=3, drawings=2) for _ in range(2))
    np.testing.assert_array_equal(once, again)


def test_another_seed_draws_other_images():
    one, other = (draw_glyphs([3], seed, characters=3, drawings=2) for seed in (0, 1))
    assert all(np.any(a != b) for a, b in zip(one, other, strict=True))


def test_an_alphabet_does_not_depend_on_the_others_drawn_with_it():
    together = draw_glyphs([9, 2, 4], 0, characters=3, drawings=2)
    for k, alphabet in enumerate([9, 2, 4]):
        alone = draw_glyphs([alphabet], 0, characters=3, drawings=2)
        np.testing.assert_array_equal(together[3 * k : 3 * k + 3], alone)


def test_a_character_does_not_depend_on_those_drawn_after_it():
    few, many = (draw_glyphs([6], 0, characters=n, drawings=2) for n in (2, 6))
    np.testing.assert_array_equal(few, many[:2])


def test_the_number_of_threads_does_not_matter(monkeypatch):
    drawn = []
    for threads in (1, 4):
        monkeypatch.setattr(glyphs.os, "cpu_count", lambda threads=threads: threads)
        drawn.append(draw_glyphs(range(4), 0, characters=2, drawings=2))
    np.testing.assert_array_equal(*drawn)


def test_drawings_of_a_class_differ():
    images = draw_glyphs([0], 0, characters=1, drawings=20)[0]
    assert len({image.tobytes() for image in images}) == 20


def test_alphabets_of_the_splits_are_disjoint():
    numbers = [alphabet for alphabets in ALPHABETS.values() for alphabet in alphabets]
    assert len(numbers) == len(set(numbers))


def test_splits_have_1000_100_and_300_classes_of_20_images():
    counts = {split: len(alphabets) * CHARACTERS for split, alphabets in ALPHABETS.items()}
    assert counts == {"train": 1000, "val": 100, "test": 300}
    assert DRAWINGS == 20


def test_images_are_dark_antialiased_ink_on_white_paper(drawn):
    assert drawn.shape == (300, 4, 28, 28)
    assert drawn.dtype == np.uint8
    assert np.all(drawn.max(axis=(2, 3)) == 255)
    assert np.all(drawn.min(axis=(2, 3)) < 40)
    assert 0.75 < np.mean(drawn == 255) < 0.92
    grey = np.mean((drawn > 0) & (drawn < 255), axis=(2, 3))
    assert grey.min() > 0.02
    assert len(np.unique(drawn)) > 200


def test_glyphs_fill_the_paper_without_being_clipped(drawn):
    assert drawn[:, :, [0, -1]].min() > 80
    assert drawn[:, :, :, [0, -1]].min() > 80
    inked = drawn < 128
    spans = [np.ptp(np.nonzero(image.any(axis=k))[0]) for image in inked[:, 0] for k in (0, 1)]
    assert np.mean(np.reshape(spans, (-1, 2)).max(axis=1)) > 14


def test_raw_pixels_score_about_as_on_omniglot(drawn):
    for cosine in (False, True):
        assert 0.20 < accuracy(drawn, way=20, cosine=cosine) < 0.45
        assert 0.40 < accuracy(drawn, way=5, cosine=cosine) < 0.65


def test_characters_are_recognisable_after_blurring_and_alignment(drawn):
    images = np.stack([cropped_and_blurred(image) for image in drawn.reshape(-1, 28, 28)])
    assert accuracy(images.reshape(300, 4, 18, 18), way=20, cosine=True) > 0.65


def test_characters_of_an_alphabet_differ():
    for alphabet in range(3):
        sketches = [glyphs._sketch(p) for p, _ in glyphs._invent_alphabet(0, alphabet, CHARACTERS)]
        for k, sketch in enumerate(sketches):
            others = np.stack(sketches[:k] + sketches[k + 1 :])
            assert glyphs._differs(sketch, others, 0.8 * glyphs.APART)


def test_characters_have_one_to_four_strokes():
    programs = [p for k in range(3) for p, _ in glyphs._invent_alphabet(0, k, CHARACTERS)]
    assert {len(program) for program in programs} == {1, 2, 3, 4}


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range_is_refused(seed, cache):
    with pytest.raises(InputError, match=str(seed)):
        load_glyphs("val", seed=seed)


def test_the_largest_seed_is_accepted():
    assert draw_glyphs([0], 2**64 - 1, characters=1, drawings=1).shape == (1, 1, 28, 28)


def test_an_unknown_split_is_an_error_with_the_nearest_name():
    with pytest.raises(InputError, match=r"'tain'; did you mean 'train'\?"):
        load_glyphs("tain")


def test_a_split_is_labelled_class_by_class(cache):
    images = load_glyphs("val")
    assert (images.name, images.split) == ("glyphs", "val")
    assert images.images.shape == (500, 28, 28, 1)
    assert images.labels.dtype == np.int64
    np.testing.assert_array_equal(images.labels, np.repeat(np.arange(25), 20))
    assert images.classes[:2] == ("alphabet01/character00", "alphabet01/character01")
    np.testing.assert_array_equal(
        images.images[:, :, :, 0], draw_glyphs([1], 0).reshape(-1, 28, 28)
    )


def test_a_split_is_drawn_once_and_then_read(cache, monkeypatch):
    first = load_glyphs("val")
    monkeypatch.setattr(glyphs, "draw_glyphs", None)
    again = load_glyphs("val")
    np.testing.assert_array_equal(first.images, again.images)
    assert first.classes == again.classes


def test_cache_files_differ_by_split_seed_and_format(cache, monkeypatch):
    monkeypatch.setattr(glyphs, "draw_glyphs", lambda *_: np.zeros((25, 20, 28, 28), np.uint8))
    load_glyphs("train")
    load_glyphs("val")
    load_glyphs("val", seed=1)
    monkeypatch.setattr(glyphs, "FORMAT", glyphs.FORMAT + 1)
    load_glyphs("val")
    assert len(list(cache.iterdir())) == 4


def test_writing_to_the_images_does_not_change_the_cache(cache):
    load_glyphs("val")
    images = load_glyphs("val").images
    before = images.copy()
    images[:] = 0
    np.testing.assert_array_equal(load_glyphs("val").images, before)


def flipped(content: bytes) -> bytes:
    return content[:5000] + bytes([content[5000] ^ 1]) + content[5001:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:60],
        lambda content: content[:-1],
        lambda content: content + b"more",
        lambda content: bytes(len(content)),
        flipped,
    ],
    ids=["empty", "header cut", "end cut", "too long", "zeros", "one bit"],
)
def test_a_damaged_cache_file_is_drawn_again(cache, damage: Callable[[bytes], bytes]):
    expected = np.array(load_glyphs("val").images)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    np.testing.assert_array_equal(load_glyphs("val").images, expected)
    assert file.read_bytes() == whole


def test_an_interrupted_write_leaves_nothing(cache, monkeypatch):
    def interrupted(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_glyphs("val")
    assert list(cache.iterdir()) == []
    assert len(load_glyphs("val")) == 500
