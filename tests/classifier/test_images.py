"""What X may be: one image or many, whole numbers or floats, grey or in colour."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from psco.classifier import FewShotClassifier
from psco.classifier.images import collect_images
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.recipes.recipe import load_recipe


@pytest.fixture
def grey(tiny):
    return Encoder.untrained(load_recipe("glyphs", tiny))


@pytest.fixture
def rgb(tiny):
    image = "image={size: 16, source_size: 16, channels: 3, mean: [0, 0, 0], std: [1, 1, 1]}"
    return Encoder.untrained(load_recipe("glyphs", [*tiny, image]))


@pytest.fixture
def colours() -> np.ndarray:
    """Draw six RGB images (6, 20, 24, 3)."""
    return np.random.default_rng(0).integers(0, 256, (6, 20, 24, 3), dtype=np.uint8)


@pytest.fixture
def clf(rgb, colours):
    return FewShotClassifier(rgb).fit(list(colours), list("aabbcc"))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_an_array_of_height_width_and_channels_is_one_image(clf, channels):
    image = np.random.default_rng(1).integers(0, 256, (20, 24, channels), dtype=np.uint8)
    assert clf.predict(image).shape == (1,)
    assert np.array_equal(clf.predict_proba(image), clf.predict_proba([image]))
    as_tensor = clf.predict_proba(torch.from_numpy(image))
    assert np.array_equal(as_tensor, clf.predict_proba([image]))


def test_one_image_needs_one_label(rgb, colours):
    with pytest.raises(InputError, match="X and y must have the same length, got 1 and 20"):
        FewShotClassifier(rgb).partial_fit(colours[0], ["a"] * 20)
    clf = FewShotClassifier(rgb).partial_fit(colours[0], ["a"])
    assert clf.support_names_ == ["#0"]


def test_an_array_without_channels_is_a_stack_of_grey_images(clf):
    assert clf.predict(np.zeros((5, 20, 24), dtype=np.uint8)).shape == (5,)
    assert clf.predict(torch.zeros(1, 20, 24, dtype=torch.uint8)).shape == (1,)


def test_a_tensor_that_is_one_rgb_image_or_three_grey_ones_is_rejected(clf):
    tensor = torch.zeros(3, 20, 24, dtype=torch.uint8)
    with pytest.raises(InputError, match=r"shape \(3, 20, 24\) may be one RGB image or three"):
        clf.predict(tensor)
    assert clf.predict(tensor[None]).shape == (1,)
    assert clf.predict(tensor[:, None]).shape == (3,)


def test_a_table_of_numbers_is_rejected_with_both_remedies(clf):
    with pytest.raises(InputError, match=r"pass \[X\] for one grey image, or use encoder=None"):
        clf.predict(np.zeros((20, 24), dtype=np.uint8))
    assert clf.predict([np.zeros((20, 24), dtype=np.uint8)]).shape == (1,)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_floats_from_0_to_1_are_scaled_to_whole_numbers(clf, colours, kind):
    floats = (colours / 255).astype(kind)
    expected = clf.predict_proba(colours)
    assert np.array_equal(clf.predict_proba(floats), expected)
    assert np.array_equal(clf.predict_proba(torch.from_numpy(floats)), expected)
    one = clf.predict_proba(floats[0])
    assert np.array_equal(one, clf.predict_proba(colours[0]))


@pytest.mark.parametrize("factor", [255.0, -1.0])
def test_floats_in_another_range_are_rejected_with_the_allowed_ranges(clf, colours, factor):
    with pytest.raises(InputError, match=r"X has values from .* from 0 to 255 or .* from 0 to 1"):
        clf.predict(factor * colours / 255)


def test_nothing_is_not_a_list_of_images():
    for X in ([], np.zeros((0, 20, 20), dtype=np.uint8)):
        with pytest.raises(InputError, match="X is empty: it has 0 images"):
            collect_images(X)


@pytest.mark.parametrize("kind", ["paths", "Pillow", "array", "arrays", "tensor", "tensors"])
def test_a_conversion_to_grey_is_reported_once_per_process(
    grey, colours, kind, tmp_path, capsys, no_notes_yet
):
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path, image in zip(paths, colours, strict=True):
        Image.fromarray(image).save(path)
    X = {
        "paths": paths,
        "Pillow": [Image.fromarray(image) for image in colours],
        "array": colours,
        "arrays": list(colours),
        "tensor": torch.from_numpy(colours),
        "tensors": [torch.from_numpy(image).permute(2, 0, 1) for image in colours],
    }[kind]
    clf = FewShotClassifier(grey).fit(X, list("aabbcc"))
    name = repr(str(paths[0])) if kind == "paths" else "'#0'"
    note = f"note: {name} is not grey; such images are converted to grey\n"
    assert capsys.readouterr().err == note
    clf.predict(X)
    assert capsys.readouterr().err == ""


def test_the_first_image_with_other_channels_is_the_one_reported(
    rgb, colours, capsys, no_notes_yet
):
    X = [Image.fromarray(image) for image in colours]
    X[2] = X[2].convert("L")
    clf = FewShotClassifier(rgb).fit(X, list("aabbcc"))
    assert capsys.readouterr().err.startswith("note: '#2' is not RGB; such images are converted")
    clf.predict(X)
    assert capsys.readouterr().err == ""


def test_images_with_the_encoders_channels_are_not_reported(
    grey, rgb, colours, capsys, no_notes_yet
):
    FewShotClassifier(rgb).fit(colours, list("aabbcc"))
    for X in (colours[..., 0], list(colours[..., 0]), torch.from_numpy(colours[..., :1])):
        FewShotClassifier(grey).fit(X, list("aabbcc"))
    assert capsys.readouterr().err == ""
