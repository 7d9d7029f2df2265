"""Decoding: every image becomes a square of 8-bit pixels, or raises one kind of error."""

from __future__ import annotations

import io
import struct
import sys
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_image

from psco.data.reading import decode
from psco.data.reading.decode import DecodeError, decode_image, probe_image
from psco.errors import InputError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encode(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def decoded(content: bytes, size: int = 16, channels: int = 3) -> np.ndarray:
    return decode_image(content, size, channels, name="it.png")


def corners(width: int = 64, height: int = 32) -> Image.Image:
    """Return an image of four colours: red, green / blue, white."""
    image = Image.new("RGB", (width, height), WHITE)
    image.paste(RED, (0, 0, width // 2, height // 2))
    image.paste(GREEN, (width // 2, 0, width, height // 2))
    image.paste(BLUE, (0, height // 2, width // 2, height))
    return image


def assert_corners(pixels: np.ndarray, tolerance: int = 12) -> None:
    far = pixels.shape[0] - 2
    seen = [pixels[1, 1], pixels[1, far], pixels[far, 1], pixels[far, far]]
    np.testing.assert_allclose(np.array(seen, dtype=int), [RED, GREEN, BLUE, WHITE], atol=tolerance)


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    return Image.fromarray(load_sample_image("china.jpg")).resize((750, 500))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_format_becomes_a_square_of_bytes(form, channels):
    pixels = decoded(encode(corners(), form), 16, channels)
    assert pixels.shape == (16, 16, channels)
    assert pixels.dtype == np.uint8
    assert pixels.flags.writeable
    if channels == 3:
        assert_corners(pixels)
    else:
        assert abs(int(pixels[1, 1, 0]) - 76) < 12  # the luma of red


@pytest.mark.parametrize(
    "shape", [(40, 30), (30, 40), (16, 16), (3, 5), (1, 1), (1, 300), (300, 1)]
)
def test_any_shape_becomes_the_size_asked_for(shape):
    assert (decoded(encode(Image.new("RGB", shape, RED), "PNG"), 16) == RED).all()


def test_the_middle_of_the_long_side_is_kept():
    image = Image.new("L", (90, 30), 0)
    image.paste(255, (30, 0, 60, 30))
    assert (decoded(encode(image, "PNG"), 30, 1) == 255).all()
    assert (decoded(encode(image.rotate(90, expand=True), "PNG"), 30, 1) == 255).all()


def test_downsampling_is_antialiased():
    checks = np.indices((128, 128)).sum(axis=0) % 2 * 255
    pixels = decoded(encode(Image.fromarray(checks.astype(np.uint8)), "PNG"), 16, 1)
    assert np.abs(pixels.astype(int) - 128).max() <= 2


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_uses_the_whole_range(form):
    ramp = np.repeat(np.array([[0, 257, 128 * 257, 255 * 257]], dtype=np.uint16), 4, axis=0)
    pixels = decoded(encode(Image.fromarray(ramp), form), 4, 1)
    assert pixels[0, :, 0].tolist() == [0, 1, 128, 255]


def test_a_dark_16_bit_image_stays_dark():
    dark = Image.fromarray(np.full((8, 8), 2570, dtype=np.uint16))
    assert (decoded(encode(dark, "PNG"), 4, 3) == 10).all()


def test_big_endian_16_bit_grey_is_read():
    image = Image.frombytes("I;16B", (2, 2), struct.pack(">4H", 0, 25700, 51400, 65535))
    assert decoded(encode(image, "TIFF"), 2, 1).ravel().tolist() == [0, 100, 200, 255]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 1, 0], [0, 255, 255, 0]),
        ([0, 100, 200, 255], [0, 100, 200, 255]),
        ([0, 25700, 51400, 65535], [0, 100, 200, 255]),
        ([-1000, 0, 0, 1000], [0, 128, 128, 255]),
        ([70000, 70000, 70000, 70000], [0, 0, 0, 0]),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bit_images_are_scaled_by_the_range_of_their_values(values, expected, dtype):
    image = Image.fromarray(np.array(values, dtype=dtype).reshape(2, 2))
    pixels = decoded(encode(image, "TIFF"), 2, 1).ravel().astype(int)
    np.testing.assert_allclose(pixels, expected, atol=1)


def test_floats_are_scaled_and_nan_is_black():
    values = np.array([[0.0, 0.5], [1.0, np.nan]], dtype=np.float32)
    pixels = decoded(encode(Image.fromarray(values), "TIFF"), 2, 1)
    assert pixels.ravel().tolist() == [0, 128, 255, 0]


def test_palettes_become_colours():
    assert_corners(decoded(encode(corners().quantize(4), "PNG")))
    assert_corners(decoded(encode(corners().quantize(4), "GIF")))


def test_transparent_entries_of_a_palette_become_white():
    image = corners().quantize(4)
    index = image.getpixel((0, 0))
    for content in (
        encode(image, "PNG", transparency=index),
        encode(image, "PNG", transparency=bytes(0 if i == index else 255 for i in range(4))),
        encode(image, "GIF", transparency=index),
    ):
        pixels = decoded(content)
        assert (pixels[1, 1] == WHITE).all()
        assert (pixels[1, 14] == GREEN).all()


@pytest.mark.parametrize("form", ["PNG", "WEBP", "TIFF"])
def test_alpha_is_composited_on_white(form):
    image = Image.new("RGBA", (32, 32), (0, 0, 0, 0))
    image.paste((255, 0, 0, 128), (0, 0, 16, 32))
    pixels = decoded(encode(image, form, **({"lossless": True} if form == "WEBP" else {})))
    assert (pixels[:, 12:] == WHITE).all()
    np.testing.assert_allclose(pixels[8, 2].astype(int), (255, 127, 127), atol=1)


def test_compositing_after_resizing_equals_compositing_before():
    random = np.random.default_rng(0)
    noise = random.integers(0, 256, (60, 60, 4), dtype=np.uint8)
    image = Image.fromarray(noise)
    flat = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    after, before = decoded(encode(image, "PNG"), 20), decoded(encode(flat, "PNG"), 20)
    assert np.abs(after.astype(int) - before).max() <= 3


def test_grey_with_alpha_is_composited_on_white():
    image = Image.new("LA", (16, 16), (0, 0))
    image.paste((50, 255), (0, 0, 8, 16))
    pixels = decoded(encode(image, "PNG"), 16, 1)
    assert pixels[8, 2, 0] == 50
    assert pixels[8, 14, 0] == 255


def test_cmyk_becomes_rgb():
    for form in ("JPEG", "TIFF"):
        assert_corners(decoded(encode(corners().convert("CMYK"), form)))


def test_one_bit_becomes_black_and_white():
    image = Image.new("1", (16, 16), 0)
    image.paste(1, (8, 0, 16, 16))
    for form in ("PNG", "TIFF", "BMP", "PPM"):
        pixels = decoded(encode(image, form), 16, 1)
        assert set(pixels.ravel().tolist()) == {0, 255}


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_exif_orientation_is_applied(form, orientation):
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = corners(64, 48)
    if orientation in undo:
        stored = stored.transpose(undo[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert_corners(decoded(encode(stored, form, exif=exif)))


def test_damaged_exif_data_are_ignored():
    for exif in (b"Exif\0\0garbage", b"Exif\0\0II*\0\xff\xff\xff\xff"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert_corners(decoded(encode(corners(), "JPEG", exif=exif)))


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_the_first_frame_is_used(form):
    frames = [Image.new("RGB", (16, 16), colour) for colour in (GREEN, RED, BLUE)]
    content = encode(frames[0], form, save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(decoded(content)[8, 8].astype(int), GREEN, atol=4)


def test_reduced_decoding_of_large_jpegs_looks_the_same(photo, monkeypatch):
    for image in (photo, photo.convert("L"), photo.rotate(90, expand=True)):
        content = encode(image, "JPEG", quality=90)
        for size in (64, 84, 112):
            with monkeypatch.context() as patch:
                quick = decoded(content, size).astype(int)
                patch.setattr(decode, "_OVERSAMPLING", 10**6)
                full = decoded(content, size)
            assert np.abs(quick - full).mean() < 1.0
            assert np.quantile(np.abs(quick - full), 0.99) <= 5


def test_reduced_decoding_never_goes_below_the_size(monkeypatch):
    seen = []
    fit = decode._fit
    monkeypatch.setattr(decode, "_fit", lambda i, s, c: seen.append(min(i.size)) or fit(i, s, c))
    for side in (85, 170, 340, 700, 1400):
        decoded(encode(Image.new("RGB", (side, 2 * side)), "JPEG"), 84)
    assert min(seen) >= 84
    assert max(seen) < 1400


def test_the_extension_does_not_matter():
    assert_corners(decode_image(encode(corners(), "JPEG"), 16, 3, name="really-a-jpeg.png"))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM"])
def test_a_truncated_file_is_an_error_with_its_name(form, photo):
    content = encode(photo, form)
    with pytest.raises(InputError, match=r"cannot decode the image 'it.png': .+; repair or remove"):
        decoded(content[: len(content) * 2 // 3])


def test_a_text_and_an_empty_file_are_refused():
    with pytest.raises(InputError, match="it is not PNG, JPEG"):
        decoded(b"this is a text, not an image\n" * 10)
    with pytest.raises(InputError, match="the file is empty"):
        decoded(b"")


def test_formats_that_run_programs_are_refused():
    with pytest.raises(InputError, match="it is not PNG"):
        decoded(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")


def png_header(width: int, height: int) -> bytes:
    """Return a small PNG file whose header claims a large image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [10_000, 100_000])
def test_decompression_bombs_are_refused(side):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InputError, match="pixels"):
            decoded(png_header(side, side))


def test_bombs_are_refused_even_without_the_limit_of_pillow(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(InputError, match="10,000,000,000 pixels exceed PSCO_MAX_PIXELS=89478485"):
        decoded(png_header(100_000, 100_000))


def test_the_header_has_size_mode_and_format():
    assert probe_image(encode(corners(), "PNG")) == (64, 32, "RGB", "PNG")
    assert probe_image(encode(Image.new("L", (5, 6)), "JPEG")) == (5, 6, "L", "JPEG")
    with pytest.raises(InputError, match=r"x\.png"):
        probe_image(b"nothing", name="x.png")


SAMPLES = [
    encode(corners(), "PNG"),
    encode(corners().quantize(4), "PNG", transparency=0),
    encode(corners(), "JPEG"),
    encode(corners(), "JPEG", progressive=True, exif=b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01"),
    encode(corners(), "WEBP"),
    encode(corners(), "TIFF"),
    encode(corners(), "TIFF", compression="tiff_lzw"),
    encode(corners(), "TIFF", compression="jpeg"),
    encode(Image.fromarray(np.ones((9, 9), np.float32)), "TIFF"),
    encode(corners(), "BMP"),
    encode(corners(), "GIF", save_all=True, append_images=[Image.new("RGB", (64, 32))]),
    encode(corners(), "PPM"),
    encode(Image.new("1", (9, 9)), "PPM"),
]


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_damaged_files_raise_nothing_but_input_errors(data):
    content = bytearray(data.draw(st.sampled_from(SAMPLES)))
    # Headers are short and matter most: damage them as often as all the rest.
    places = st.integers(0, 80) | st.integers(0, len(content) - 1)
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=6)):
        content[min(place, len(content) - 1)] = value
    end = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    error = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert decoded(bytes(content[:end]), 8).shape == (8, 8, 3)
        except InputError as raised:
            error = raised
    if error is not None:
        assert isinstance(error, DecodeError)
        assert "'it.png'" in str(error)
        assert "\n" not in str(error)


# ------------------------------------------------------------------------------------ HEIC, AVIF

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100)
AVIF = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1miaf" + bytes(100)


@pytest.fixture
def basic_pillow(monkeypatch):
    """Decode as with a Pillow that has neither AVIF nor pillow-heif."""
    decode.available_formats.cache_clear()
    monkeypatch.setattr(decode.features, "get_supported_modules", lambda: [])
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # an import raises ImportError
    yield
    decode.available_formats.cache_clear()


def test_heic_and_avif_are_reported_with_what_reads_them(basic_pillow):
    with pytest.raises(DecodeError, match="HEIC images need pillow-heif: pip install pillow-heif"):
        decoded(HEIC)
    with pytest.raises(DecodeError, match=r"AVIF images need Pillow 11\.3 or later"):
        decoded(AVIF)


@pytest.mark.skipif("AVIF" not in decode.available_formats(), reason="Pillow without AVIF")
def test_avif_is_decoded_where_pillow_can():
    assert_corners(decoded(encode(corners(), "AVIF")), tolerance=25)
    with pytest.raises(DecodeError, match=r"'it\.png'"):
        decoded(AVIF)


@pytest.mark.skipif("HEIF" not in decode.available_formats(), reason="needs pillow-heif")
def test_heic_is_decoded_with_pillow_heif():
    assert_corners(decoded(encode(corners(), "HEIF")), tolerance=25)


def test_the_limit_on_pixels_can_be_set(monkeypatch):
    content = encode(Image.new("L", (100, 80)), "PNG")
    monkeypatch.setenv("PSCO_MAX_PIXELS", "7999")
    with pytest.raises(DecodeError, match="its 8,000 pixels exceed PSCO_MAX_PIXELS=7999"):
        decoded(content)
    monkeypatch.setenv("PSCO_MAX_PIXELS", "8000")
    assert decoded(content).shape == (16, 16, 3)


def test_a_raised_limit_also_lifts_the_limit_of_pillow(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # restored at the end
    monkeypatch.setenv("PSCO_MAX_PIXELS", "400000000")
    with pytest.raises(DecodeError) as caught:  # the header is accepted, the pixels are missing
        decoded(png_header(15_000, 15_000))
    assert "PSCO_MAX_PIXELS" not in str(caught.value)


def test_a_jpeg_above_the_limit_is_decoded_at_a_reduced_size(monkeypatch):
    monkeypatch.setenv("PSCO_MAX_PIXELS", "100000")
    content = encode(corners(1024, 1024), "JPEG")
    assert_corners(decoded(content, 32))


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_images_can_keep_other_proportions_and_stand_upright(orientation):
    upright = Image.new("RGB", (80, 60), "red")
    upright.paste("blue", (40, 0, 80, 60))  # the right half
    turned = {
        1: None,
        3: Image.Transpose.ROTATE_180,
        6: Image.Transpose.ROTATE_90,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright if turned[orientation] is None else upright.transpose(turned[orientation])
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    stored.save(file, "PNG", exif=exif)
    found = decode_image(file.getvalue(), (30, 40), 3, name="x")
    assert found.shape == (30, 40, 3)
    assert (found[:, :18] == [255, 0, 0]).all()
    assert (found[:, 22:] == [0, 0, 255]).all()
