"""Two views of every image, reproducible for each step; views may be any function of a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.part import BatchSliceGenerator, fresh_generator
from psco.views.view import View
from psco.views.warp import shrink

WORD = 2**32


def step_generator(
    seed: int, step: int, batch_slice: tuple[int, int] | None = None
) -> torch.Generator:
    """Return a generator for one training step, which depends on seed and step only.

    A resumed run therefore continues as if it had never stopped.

    Parameters
    ----------
    seed
        Any integer; it selects a permutation of the random streams.
    step
        From 0; for one seed, no two of 2**32 steps share a stream.
    batch_slice
        If only some rows of a batch are processed here: the first of them, and the size of the
        whole batch. The rows get the numbers of the whole batch, see `BatchSliceGenerator`.

    Returns
    -------
    torch.Generator
        On the CPU.
    """
    # The CPU generator of PyTorch uses only the low 32 bits of its seed. A hash of both numbers
    # would therefore repeat within about 2**16 steps; a permutation of the steps selected by the
    # seed does not. Every round is invertible modulo 2**32: an odd factor, then a shifted xor.
    key = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    mixed = step % WORD
    for place in range(0, 16, 4):
        mixed = (mixed ^ int.from_bytes(key[place : place + 4], "little")) * 0x9E3779B1 % WORD
        mixed ^= mixed >> 15
    return fresh_generator(
        mixed, None if batch_slice is None else BatchSliceGenerator(*batch_slice)
    )


@dataclass(frozen=True)
class CallableView:
    """A view computed by any function of a batch, such as a transform of torchvision or kornia.

    The function is called with (B, C, H, W) uint8 images and returns (B, c, h, w) floating-point
    images, normalised as the encoder expects. The global random state of PyTorch is seeded from the
    generator before the call and restored after it, so a function that draws its random numbers
    from PyTorch is reproducible. Other random numbers, such as those of ``random``, are not.

    Transforms of torchvision use the same random numbers for the whole batch; to vary them, call
    the transform for each image and stack the results. If a batch is split over several processes,
    each calls the function on its rows, with a different seed.

    Parameters
    ----------
    function
        ``f(images) -> images``.
    """

    function: Callable[[Tensor], Tensor]

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Call the function with random numbers from the generator, and check its result.

        Raises
        ------
        InputError
            If the result is not a floating-point tensor (B, c, h, w).
        """
        seed = int(torch.randint(WORD, (), generator=generator))
        if isinstance(generator, BatchSliceGenerator):
            seed = (seed + generator.first) % WORD
        cuda = [images.device] if images.is_cuda else []
        with torch.random.fork_rng(devices=cuda):
            torch.default_generator.manual_seed(seed)
            for device in cuda:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(seed)
            result: object = self.function(images)
        if not isinstance(result, Tensor):
            raise InputError(f"{self._name} must return a tensor, not {type(result).__name__}")
        if not result.is_floating_point() or result.ndim != 4 or len(result) != len(images):
            raise InputError(
                f"{self._name} must return a floating-point tensor of shape "
                f"({len(images)}, c, h, w), not {result.dtype} of shape {tuple(result.shape)}"
            )
        return result

    @property
    def _name(self) -> str:
        return f"view {getattr(self.function, '__name__', type(self.function).__name__)!r}"


AnyView: TypeAlias = View | CallableView | Callable[[Tensor], Tensor]


class TwoViews:
    """Two views of every image: one for the encoder, one for the momentum encoder.

    Parameters
    ----------
    view_a, view_b
        Each a View, or any function ``f(images) -> images``, which becomes a CallableView.

    Raises
    ------
    InputError
        If a view cannot be called.
    """

    def __init__(self, view_a: AnyView, view_b: AnyView) -> None:
        self.view_a = as_view(view_a)
        self.view_b = as_view(view_b)

    def __call__(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw both views of (B, C, H, W) uint8 images; view_a uses the generator first."""
        sides = {v.source_side if isinstance(v, View) else None for v in (self.view_a, self.view_b)}
        if len(sides) == 1 and (side := sides.pop()) is not None:
            # Both views would shrink the images in the same way; doing it once takes half the time.
            images = shrink(images, side)
        first = self.view_a(images, generator)
        return first, self.view_b(images, generator)


def as_view(view: AnyView) -> View | CallableView:
    """Return a view; a function of images is wrapped.

    Raises
    ------
    InputError
        If the view cannot be called.
    """
    if isinstance(view, (View, CallableView)):
        return view
    if not callable(view):
        raise InputError(f"a view must be a View or a function of images, not {view!r}")
    return CallableView(view)
