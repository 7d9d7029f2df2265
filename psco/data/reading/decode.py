"""Decoding of one image file of any common format into a small square of 8-bit pixels."""

from __future__ import annotations

import importlib
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

from psco.data.reading.limits import MAX_PIXELS, Limits, current_limits
from psco.errors import BROKEN_IMPORT, InputError, printable, quoted

Size: TypeAlias = int | tuple[int, int]  # the side of a square, or height and width
FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM")
# HEIC and AVIF are listed even where they cannot be decoded, so that they are reported.
EXTENSIONS = (
    *(".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp", ".gif", ".ppm", ".pgm"),
    *(".heic", ".heif", ".avif"),
)
# First bytes of files of these formats; WebP is RIFF, TIFF either II or MM.
_SIGNATURES = (b"\x89PNG", b"\xff\xd8", b"RIFF", b"II", b"MM", b"BM", b"GIF8", b"P")
_AVIF_BRANDS = (b"avif", b"avis")
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_LARGE = 4_000_000  # pixels; only one larger image at a time is held in memory
_ONE_LARGE = threading.Lock()
# A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where that leaves twice the pixels needed: after
# the antialiased resize, the difference to a full decode does not show.
_OVERSAMPLING = 2
_ORIENTATION_TAG = 0x0112  # of EXIF
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


_LYING = (5, 6, 7, 8)  # orientations whose sides change places when the image is turned upright


class DecodeError(InputError):
    """A file that is not an image, or a damaged one.

    Parameters
    ----------
    name
        The file.
    reason
        What is wrong with it; also the attribute ``reason``.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"cannot decode the image {quoted(name)}: {reason}; repair or remove it")
        self.reason = reason


class Header(NamedTuple):
    """Size in pixels, Pillow's mode such as ``"RGB"`` and its format such as ``"PNG"``."""

    width: int
    height: int
    mode: str
    format: str


def decode_image(content: bytes, size: Size, channels: int, *, name: str) -> np.ndarray:
    """Decode an image: its centre square, or its middle in other proportions, upright and resized.

    Transparent pixels become white, 16-bit grey is scaled to 8 bits, of an animation the first
    frame is used, and the EXIF orientation is applied.

    Parameters
    ----------
    content
        The file: PNG, JPEG, WebP, TIFF, BMP, GIF, PPM, or another of `available_formats`.
    size
        Side of the result in pixels, or its height and width. The image is resized to cover it
        (bicubic, antialiased), and its middle is kept.
    channels
        1 for grey, 3 for RGB.
    name
        Name of the file in errors.

    Returns
    -------
    np.ndarray
        (size, size, channels) or (height, width, channels) uint8.

    Raises
    ------
    DecodeError
        If the file is not an image, is damaged or cut short, or exceeds the limit on pixels (see
        `Limits`). No other error is raised, whatever the content.
    """
    mode = "L" if channels == 1 else "RGB"
    height, width = sides(size)

    def fit(file: Image.Image) -> Image.Image:
        lies = _orientation(file) in _LYING
        return _fit(file, (width, height) if lies else (height, width), channels)

    return _array(_decode(content, name, mode, max(height, width), fit), channels)


def decode_whole(content: bytes, longest: int, *, name: str) -> Image.Image:
    """Decode an image for looking at: whole and upright, in RGB, with no side over ``longest``.

    It is never enlarged. Otherwise as `decode_image`, which describes the errors too.
    """
    return _decode(content, name, "RGB", longest, lambda file: _within(file, longest))


def _decode(
    content: bytes, name: str, mode: str, size: int, resize: Callable[[Image.Image], Image.Image]
) -> Image.Image:
    """Return an upright image that ``resize`` has made small; at least ``size`` px enter it."""
    limit = current_limits().pixels
    with _one_kind_of_error(name, content), _open(content, limit) as file:
        file.draft(mode, (_OVERSAMPLING * size, _OVERSAMPLING * size))
        pixels = file.width * file.height
        if pixels > limit:
            raise DecodeError(name, f"its {pixels:,} pixels exceed {MAX_PIXELS}={limit}")
        with _ONE_LARGE if pixels > _LARGE else nullcontext():
            file.load()
            small = resize(file)
            transpose = _TRANSPOSE.get(_orientation(file))
            file.close()  # frees the large image before the next one is loaded
        return small if transpose is None else small.transpose(transpose)


def sides(size: Size) -> tuple[int, int]:
    """Return height and width of images that are squares or have given sides."""
    return (size, size) if isinstance(size, int) else size


def with_aspect(size: int, aspect: float) -> Size:
    """Return the sides of images with a given short side and ratio of width to height."""
    if aspect == 1:
        return size
    return (size, round(size * aspect)) if aspect > 1 else (round(size / aspect), size)


def probe_image(content: bytes, *, name: str = "image") -> Header:
    """Read the header of an image, without its pixels.

    Raises
    ------
    DecodeError
        If it is not the header of an image.
    """
    with _one_kind_of_error(name, content), _open(content, current_limits().pixels) as file:
        return Header(file.width, file.height, file.mode, file.format or "unknown")


def begins_like_image(beginning: bytes) -> bool:
    """Whether the first 16 bytes of a file may be those of an image; True if in doubt."""
    return beginning.startswith(_SIGNATURES) or beginning[4:8] == b"ftyp"


@cache
def available_formats() -> tuple[str, ...]:
    """Return the formats that can be decoded, by Pillow's names.

    AVIF needs a Pillow that was built with it, HEIF (``.heic``) the package pillow-heif.
    """
    has_avif = "avif" in features.get_supported_modules()
    formats = (*FORMATS, "AVIF") if has_avif else FORMATS
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except BROKEN_IMPORT:
        return formats
    return (*formats, "HEIF")


def square_image(image: Image.Image, size: int, channels: int) -> np.ndarray:
    """Return an image in memory as (size, size, channels) uint8, as `decode_image` does."""
    return _array(_fit(image, (size, size), channels), channels)


def _open(content: bytes, max_pixels: int) -> Image.Image:
    if max_pixels > Limits.pixels:  # Pillow refuses images of more than twice its own limit
        Image.MAX_IMAGE_PIXELS = max(max_pixels, Image.MAX_IMAGE_PIXELS or 0)
    return Image.open(io.BytesIO(content), formats=available_formats())


@contextmanager
def _one_kind_of_error(name: str, content: bytes) -> Iterator[None]:
    try:
        yield
    except DecodeError:
        raise
    except Exception as error:  # a damaged file can make Pillow raise almost anything
        raise DecodeError(name, _reason(error, content)) from None


def _reason(error: Exception, content: bytes) -> str:
    if not content:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        formats = available_formats()
        if content[4:8] == b"ftyp" and content[8:12] in _AVIF_BRANDS and "AVIF" not in formats:
            return "AVIF images need Pillow 11.3 or later: pip install -U pillow"
        if content[4:8] == b"ftyp" and content[8:12] in _HEIF_BRANDS and "HEIF" not in formats:
            return "HEIC images need pillow-heif: pip install pillow-heif"
        return f"it is not {', '.join(formats[:-1])} or {formats[-1]}, or its start is damaged"
    if isinstance(error, Image.DecompressionBombError):
        return f"its pixels exceed {MAX_PIXELS}={current_limits().pixels}"
    return printable(" ".join(str(error).split()), 200) or type(error).__name__


def _orientation(file: Image.Image) -> int:
    # Called after loading, since Pillow rotates a TIFF itself. Damaged EXIF data are ignored.
    try:
        orientation = file.getexif().get(_ORIENTATION_TAG)
    except Exception:
        return 1
    return orientation if isinstance(orientation, int) else 1


def _fit(image: Image.Image, size: tuple[int, int], channels: int) -> Image.Image:
    fitted = ImageOps.fit(_eight_bits(image), size[::-1], Image.Resampling.BICUBIC)
    return _on_white(fitted).convert("L" if channels == 1 else "RGB")


def _within(image: Image.Image, longest: int) -> Image.Image:
    whole = _eight_bits(image).copy()  # Pillow's thumbnail changes the image itself
    whole.thumbnail((longest, longest), Image.Resampling.BICUBIC)
    return _on_white(whole).convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    # Pillow weights colours by opacity when it resizes, so compositing the small image on white
    # gives the same result as the large one, in less time.
    if image.mode != "RGBA":
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)


def _array(square: Image.Image, channels: int) -> np.ndarray:
    return np.array(square, dtype=np.uint8).reshape(square.height, square.width, channels)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Convert to one of the modes L, RGB and RGBA."""
    if image.mode.startswith("I;16"):
        return Image.fromarray(_scaled(np.asarray(image), 65535))
    if image.mode in ("I", "F"):
        values = np.nan_to_num(np.asarray(image), posinf=0, neginf=0)
        # Only a TIFF leaves the value of white open; older versions of Pillow read other 16-bit
        # files as 32 bits.
        return Image.fromarray(
            _scaled(values, 65535) if image.format in ("PNG", "PPM") else _guess_scale(values)
        )
    if image.mode == "RGBA" or (image.mode in ("L", "RGB") and "transparency" not in image.info):
        return image
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("L" if image.mode == "1" else "RGB")


def _guess_scale(values: np.ndarray) -> np.ndarray:
    """Scale from the smallest usual range (to 1, 255, 65535) that holds all values, or stretch."""
    low, high = float(values.min()), float(values.max())
    for white in (1, 255, 65535):
        if low >= 0 and high <= white:
            return _scaled(values, white)
    return _scaled(values.astype(np.float64) - low, high - low or 1.0)


def _scaled(values: np.ndarray, white: float) -> np.ndarray:
    # float32 represents every 16-bit integer, in half the memory of the default.
    scaled: np.ndarray = np.rint(values * np.float32(255 / white)).clip(0, 255).astype(np.uint8)
    return scaled
