"""Decoding of whole images, for looking at."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from psco.data.reading.decode import DecodeError, decode_whole


def encode(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def test_the_proportions_are_kept_and_nothing_is_enlarged():
    wide = encode(Image.new("RGB", (400, 100), "red"))
    assert decode_whole(wide, 200, name="wide").size == (200, 50)
    assert decode_whole(wide, 1000, name="wide").size == (400, 100)


def test_transparent_pixels_become_white():
    clear = encode(Image.new("RGBA", (8, 8), (0, 0, 0, 0)))
    assert decode_whole(clear, 8, name="clear").getpixel((0, 0)) == (255, 255, 255)


def test_an_image_is_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encode(Image.new("L", (40, 20)), "JPEG", exif=exif)
    assert decode_whole(turned, 40, name="turned").size == (20, 40)


@pytest.mark.parametrize("content", [b"", b"no image", encode(Image.new("L", (90, 90)))[:60]])
def test_what_is_no_image_is_an_error_with_its_name(content):
    with pytest.raises(DecodeError, match="strange"):
        decode_whole(content, 40, name="strange")
