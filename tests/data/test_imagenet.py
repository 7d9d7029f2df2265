"""ImageNet, and images that are decoded at each access."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from psco import Encoder, load_recipe
from psco.data.reading.decode import decode_image
from psco.data.reading.listing import Listing
from psco.data.sets.imagenet import LazyImages, list_imagenet, load_imagenet
from psco.errors import InputError

CLASSES = ["n01440764", "n01443537", "n01484850"]


def picture(seed: int) -> bytes:
    content = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of ImageNet with four images of each of three classes in both parts."""
    for part in ("train", "val"):
        for place, name in enumerate(CLASSES):
            folder = tmp_path / "imagenet" / part / name
            folder.mkdir(parents=True)
            for number in range(4):
                (folder / f"{name}_{number}.png").write_bytes(picture(10 * place + number))
    return tmp_path


def test_training_images_are_the_centre_squares(copy):
    images = load_imagenet("train", copy, size=32)
    assert images.images.shape == (12, 32, 32, 3)
    assert images.classes == tuple(CLASSES)
    np.testing.assert_array_equal(images.labels, np.repeat(range(3), 4))
    whole = decode_image(picture(11), 32, 3, name="whole")
    np.testing.assert_array_equal(images.images[5], whole)


@pytest.mark.parametrize("split", ["val", "test"])
def test_test_images_are_resized_to_256_pixels_and_cropped_to_the_central_224_once(copy, split):
    recipe = load_recipe("imagenet", ["method.name=pixels"])
    images = load_imagenet(split, copy, size=recipe.image.source_size)
    assert images.split == split
    square = decode_image(picture(20), 256, 3, name="square")
    np.testing.assert_array_equal(images.images[8], square)
    centre = torch.from_numpy(square[16:240, 16:240]).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(v)[:, None, None] for v in (recipe.image.mean, recipe.image.std))
    shown = Encoder.untrained(recipe).pixels(images.images[8:9]).features
    torch.testing.assert_close(shown.view(3, 224, 224), (centre - mean) / std)


def test_grey_is_decoded_as_grey(copy):
    assert load_imagenet("val", copy, size=8, channels=1).images[:2].shape == (2, 8, 8, 1)


def test_224_pixels_are_the_default(copy):
    assert load_imagenet("val", copy).images.shape == (12, 224, 224, 3)


class Memory:
    """A source of files in memory."""

    path = Path("memory")

    def __init__(self, number: int) -> None:
        self.files = {f"{n}.png": picture(n) for n in range(number)}

    def names(self) -> list[str]:
        return list(self.files)

    def read(self, name: str) -> bytes:
        return self.files[name]

    def stamp(self) -> str:
        return "memory"


MEMORY = Memory(9)
LAZY = LazyImages(Listing(MEMORY, tuple(MEMORY.names())), 6, 3)
ARRAY = np.asarray(LAZY)
indices = st.one_of(
    st.integers(-9, 8),
    st.slices(9),
    arrays.arrays(
        np.int64, st.one_of(st.integers(0, 9), st.just((3, 2))), elements=st.integers(-9, 8)
    ),
    arrays.arrays(bool, 9),
    st.just(Ellipsis),
)


@given(index=indices)
@settings(max_examples=50, deadline=None)
def test_lazy_images_index_like_an_array(index):
    np.testing.assert_array_equal(LAZY[index], ARRAY[index])
    assert LAZY[index].shape == ARRAY[index].shape


def test_lazy_images_look_like_an_array():
    assert (LAZY.shape, LAZY.dtype, LAZY.ndim, len(LAZY)) == ((9, 6, 6, 3), np.uint8, 4, 9)
    assert (ARRAY.shape, ARRAY.dtype) == ((9, 6, 6, 3), np.uint8)
    with pytest.raises(IndexError):
        LAZY[9]


def test_an_image_that_cannot_be_decoded_is_an_input_error(copy):
    file = copy / "imagenet" / "val" / CLASSES[1] / f"{CLASSES[1]}_2.png"
    file.write_bytes(b"no picture")
    images = load_imagenet("val", copy, size=8)
    assert images.images[:6].shape == (6, 8, 8, 3)
    with pytest.raises(InputError, match=file.name):
        images.images[6]


def test_images_outside_of_class_folders_are_an_input_error(tmp_path):
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(picture(0))
    with pytest.raises(InputError, match=r"not in class folders; move them .* n01440764"):
        list_imagenet("val", tmp_path)


def test_a_part_without_images_is_an_input_error(tmp_path):
    (tmp_path / "val").mkdir()
    with pytest.raises(InputError, match="no images in"):
        list_imagenet("val", tmp_path)


def test_a_missing_part_is_an_error_with_what_was_expected_and_found(copy):
    (copy / "imagenet" / "val").rename(copy / "imagenet" / "validation")
    with pytest.raises(InputError, match=r"no val/ in .* expected train and val.* 'train', 'valid"):
        load_imagenet("val", copy)


@pytest.mark.parametrize(
    ("arguments", "words"), [({"split": "base2"}, "known: "), ({"size": 0}, "at least 1")]
)
def test_a_wrong_argument_is_an_input_error(copy, arguments, words):
    with pytest.raises(InputError, match=words):
        load_imagenet(root=copy, **arguments)
