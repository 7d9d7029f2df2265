"""One encoded picture of any common kind becomes a small square of 8-bit pixels."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from psco.errors import InputError

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "GIF", "PPM")
# Beginnings of files of these formats; WebP is RIFF, TIFF either II or MM.
_BEGINNINGS = (b"\x89PNG", b"\xff\xd8", b"RIFF", b"II", b"MM", b"BM", b"GIF8", b"P")
MAX_PIXELS = 89_478_485  # held in memory for one picture; above it Pillow suspects a bomb, too
_LARGE = 4_000_000  # pixels; of larger pictures only one at a time is held in memory
_ONE_LARGE = threading.Lock()
# A JPEG is decoded at a half, a quarter or an eighth where that leaves twice the pixels needed:
# the antialiased resize that follows then hides the difference to a full decode.
_SPARE = 2
_ORIENTATION = 0x0112  # number of the EXIF tag
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class DecodeError(InputError):
    """A file that is no picture, or a damaged one.

    Parameters
    ----------
    name
        The file.
    reason
        What is wrong with it, also kept as the attribute ``reason``.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"cannot decode the image {name!r}: {reason}; repair or remove it")
        self.reason = reason


class Header(NamedTuple):
    """Sides in pixels, Pillow's mode such as ``"RGB"`` and format such as ``"PNG"``."""

    width: int
    height: int
    mode: str
    format: str


def decode_image(content: bytes, size: int, channels: int, *, name: str) -> np.ndarray:
    """Decode a picture, upright, its centre square resized to ``size``.

    Transparent parts become white, 16-bit grey is scaled to 8 bits, an animation gives its first
    frame, a rotation noted in the EXIF data is carried out.

    Parameters
    ----------
    content
        The file: PNG, JPEG, WebP, TIFF, BMP, GIF or PPM.
    size
        Side of the result in pixels: the short side is resized to it (bicubic, antialiased) and
        the middle of the long side is kept.
    channels
        1 for grey, 3 for RGB.
    name
        Names the file in errors.

    Returns
    -------
    np.ndarray
        (size, size, channels) uint8.

    Raises
    ------
    DecodeError
        If the file is no picture, is damaged or cut short, or has too many pixels. It is an
        InputError; nothing else is raised whatever the content.
    """
    with _one_kind_of_error(name, content), _open(content) as file:
        file.draft("L" if channels == 1 else "RGB", (_SPARE * size, _SPARE * size))
        pixels = file.width * file.height
        if pixels > MAX_PIXELS:
            raise DecodeError(name, f"{pixels} pixels are more than the {MAX_PIXELS} allowed")
        with _ONE_LARGE if pixels > _LARGE else nullcontext():
            file.load()
            square = _fit(file, size, channels)
            turn = _TURNS.get(_orientation(file))
            file.close()  # frees the large picture before the next one is loaded
        return _array(square if turn is None else square.transpose(turn), channels)


def probe_image(content: bytes, *, name: str = "image") -> Header:
    """Read the header of a picture, without its pixels.

    Raises
    ------
    DecodeError
        If there is no such header.
    """
    with _one_kind_of_error(name, content), _open(content) as file:
        return Header(file.width, file.height, file.mode, file.format or "unknown")


def begins_like_image(beginning: bytes) -> bool:
    """Say whether the first bytes of a file may be those of a picture; never too strict."""
    return beginning.startswith(_BEGINNINGS)


def square_image(image: Image.Image, size: int, channels: int) -> np.ndarray:
    """Turn a picture in memory into (size, size, channels) uint8, as `decode_image` does."""
    return _array(_fit(image, size, channels), channels)


def _open(content: bytes) -> Image.Image:
    return Image.open(io.BytesIO(content), formats=FORMATS)


@contextmanager
def _one_kind_of_error(name: str, content: bytes) -> Iterator[None]:
    try:
        yield
    except DecodeError:
        raise
    except Exception as error:  # damaged files make Pillow raise nearly anything
        raise DecodeError(name, _reason(error, content)) from None


def _reason(error: Exception, content: bytes) -> str:
    if not content:
        return "the file is empty"
    if isinstance(error, UnidentifiedImageError):
        return f"neither {', '.join(FORMATS[:-1])} nor {FORMATS[-1]}, or cut short at its beginning"
    if isinstance(error, Image.DecompressionBombError):
        return "it has too many pixels, which may be an attack (decompression bomb)"
    return " ".join(str(error).split())[:200] or type(error).__name__


def _orientation(file: Image.Image) -> int:
    # Asked after loading, since Pillow turns a TIFF itself. Damaged EXIF data spoil no picture.
    try:
        orientation = file.getexif().get(_ORIENTATION)
    except Exception:
        return 1
    return orientation if isinstance(orientation, int) else 1


def _fit(image: Image.Image, size: int, channels: int) -> Image.Image:
    square = ImageOps.fit(_eight_bits(image), (size, size), Image.Resampling.BICUBIC)
    if square.mode == "RGBA":
        # Pillow weighs colours by their opacity as it resizes, so the small square may be laid on
        # white just as well as the large picture, and sooner.
        square = Image.alpha_composite(Image.new("RGBA", square.size, "white"), square)
    return square.convert("L" if channels == 1 else "RGB")


def _array(square: Image.Image, channels: int) -> np.ndarray:
    return np.array(square, dtype=np.uint8).reshape(square.height, square.width, channels)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Convert to one of the modes L, RGB and RGBA, where it is not one already."""
    if image.mode.startswith("I;16"):
        return Image.fromarray(_scaled(np.asarray(image), 65535))
    if image.mode in ("I", "F"):
        values = np.nan_to_num(np.asarray(image), posinf=0, neginf=0)
        # Only a TIFF leaves open what white is; older versions of Pillow read other 16-bit
        # files into 32 bits.
        return Image.fromarray(
            _scaled(values, 65535) if image.format in ("PNG", "PPM") else _guess_scale(values)
        )
    if image.mode == "RGBA" or (image.mode in ("L", "RGB") and "transparency" not in image.info):
        return image
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("L" if image.mode == "1" else "RGB")


def _guess_scale(values: np.ndarray) -> np.ndarray:
    """Take the smallest usual range (to 1, 255, 65535) that holds all values, else stretch."""
    low, high = float(values.min()), float(values.max())
    for white in (1, 255, 65535):
        if low >= 0 and high <= white:
            return _scaled(values, white)
    return _scaled(values.astype(np.float64) - low, high - low or 1.0)


def _scaled(values: np.ndarray, white: float) -> np.ndarray:
    # float32 holds every 16-bit number, and takes half the memory of the default.
    scaled: np.ndarray = np.rint(values * np.float32(255 / white)).clip(0, 255).astype(np.uint8)
    return scaled
