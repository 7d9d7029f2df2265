"""Pixels to points on any device, and the small copies of pictures that are kept beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch

from psco.encoder import Encoder
from psco.errors import InputError
from psco.rules import Points
from psco.views import plain_view, resize, to_batch

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
def embedding(encoder: Encoder, device: torch.device) -> Iterator[Callable[[np.ndarray], Points]]:
    """Lend a network to a device; give the function that embeds images (n, H, W, C) there.

    The points come back to the CPU at once, and the network does when the block ends.
    """
    image, method = encoder.recipe.image, encoder.method

    @torch.no_grad()
    def embed(images: np.ndarray) -> Points:
        batch = plain_view(to_batch(images).to(device), image.size, image.mean, image.std)
        features = method.backbone(batch)
        support, query = method.support_head(features), method.query_head(features)
        return Points(features.cpu(), support.cpu(), query.cpu())

    try:
        method.to(device)
        yield embed
    finally:
        method.to("cpu")
