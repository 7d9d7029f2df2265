"""Pixels to points on any device, and the small copies of pictures that are kept beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings
from psco.views import resize, to_batch

_THUMBNAIL = 32  # pixels


def thumbnails(images: np.ndarray) -> np.ndarray:
    """Make small copies, (n, 32, 32, C) uint8, of images (n, H, W, C) uint8."""
    small = resize(to_batch(images), _THUMBNAIL).clamp(0, 1)
    return (small * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()


def choose_device(name: str) -> torch.device:
    """Turn ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``mps`` ... into a device that is there.

    Raises
    ------
    InputError
        If there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError):
        raise InputError(f"there is no device {name!r} here; auto chooses one") from None
    return device


@contextmanager
def embedding(
    encoder: Encoder, device: torch.device
) -> Iterator[Callable[[np.ndarray], Embeddings]]:
    """Lend a network to a device; give the function that embeds images (n, H, W, C) there.

    The points come back to the CPU at once, and the network does when the block ends.
    """

    def embed(images: np.ndarray) -> Embeddings:
        there = encoder.embed_batch(to_batch(images).to(device))
        return Embeddings(there.features.cpu(), there.support.cpu(), there.query.cpu())

    try:
        encoder.method.to(device)
        yield embed
    finally:
        encoder.method.to("cpu")
