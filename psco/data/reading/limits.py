"""Limits on what is read, since images often come from other people.

Each limit has a default that ordinary images stay far below, and an environment variable.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from psco.errors import InputError, quoted

MAX_FILE = "PSCO_MAX_FILE_MB"
MAX_PIXELS = "PSCO_MAX_PIXELS"
FOLLOW_LINKS = "PSCO_FOLLOW_LINKS"


@dataclass(frozen=True)
class Limits:
    """What a reader accepts.

    Parameters
    ----------
    file_bytes
        Largest image file or archive member. The default holds any uncompressed image within the
        limit on pixels.
    pixels
        Most pixels of one image in memory; above the default, Pillow warns of a decompression
        bomb, too. A JPEG counts at the reduced size at which it is decoded.
    follow_links
        Whether symbolic links that lead out of a folder are followed.
    """

    file_bytes: int = 500_000_000
    pixels: int = 89_478_485
    follow_links: bool = False


def current_limits() -> Limits:
    """Return the limits, as set by ``PSCO_MAX_FILE_MB``, ``_MAX_PIXELS`` and ``_FOLLOW_LINKS``.

    Raises
    ------
    InputError
        If a variable has a value that is not a positive whole number, or neither 0 nor 1.
    """
    megabytes = _positive(MAX_FILE)
    follow = os.environ.get(FOLLOW_LINKS) or "0"
    if follow not in ("0", "1"):
        raise InputError(f"{FOLLOW_LINKS} must be 0 or 1, not {quoted(follow)}")
    return Limits(
        file_bytes=Limits.file_bytes if megabytes is None else megabytes * 1_000_000,
        pixels=_positive(MAX_PIXELS) or Limits.pixels,
        follow_links=follow == "1",
    )


def too_large(size: int, limit: int) -> str:
    """Return why a file of ``size`` bytes is not read."""
    return (
        f"its {size / 1e6:,.0f} MB exceed the limit of {limit / 1e6:,.0f} MB; "
        f"set {MAX_FILE} to raise it"
    )


def _positive(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:18]) > 0):
        raise InputError(f"{variable} must be a positive whole number, not {quoted(text)}")
    return int(text[:18])
