"""Views of every image, reproducible for each step; views may be any function of a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from psco.errors import InputError
from psco.views.part import (
    BatchSliceGenerator,
    bernoulli,
    check_probability,
    fresh_generator,
    per_image,
)
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
    """Views of every image: one or several for the encoder, one for the momentum encoder.

    Parameters
    ----------
    view_a, view_b
        Each a View, or any function ``f(images) -> images``, which becomes a CallableView.
    count
        Views V of an image, at least 2: V − 1 draws of view_a and one of view_b.
    shared_flip
        Probability in [0, 1] that an image is flipped horizontally before its views are drawn, so
        that all of them are.

    Raises
    ------
    InputError
        If a view cannot be called, or a number is out of range.
    """

    def __init__(
        self, view_a: AnyView, view_b: AnyView, count: int = 2, shared_flip: float = 0.0
    ) -> None:
        if count < 2:
            raise InputError(f"views.count must be at least 2, got {count}")
        check_probability("views", shared_flip, "shared_flip")
        self.view_a = as_view(view_a)
        self.view_b = as_view(view_b)
        self.count, self.shared_flip = count, shared_flip

    def at_size(self, size: int) -> TwoViews:
        """Return the same views with a side of ``size`` pixels.

        Raises
        ------
        InputError
            If a view is a function, which decides the size of its result.
        """
        if not (isinstance(self.view_a, View) and isinstance(self.view_b, View)):
            raise InputError(f"views that are functions have their own size, not {size} px")
        a, b = replace(self.view_a, size=size), replace(self.view_b, size=size)
        return TwoViews(a, b, self.count, self.shared_flip)

    def __call__(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw the views of (B, C, H, W) uint8 images; view_a uses the generator first.

        Returns
        -------
        tuple
            ((V − 1)·B, C, h, w) draws of view_a, the first of all images, then the second of all
            images and so on; and (B, C, h, w) draws of view_b.
        """
        if self.shared_flip > 0:
            flipped = per_image(bernoulli(len(images), self.shared_flip, generator), images)
            images = torch.where(flipped, images.flip(3), images)
        sides = {v.source_side if isinstance(v, View) else None for v in (self.view_a, self.view_b)}
        if len(sides) == 1 and (side := sides.pop()) is not None:
            # Both views would shrink the images in the same way; doing it once takes half the time.
            images = shrink(images, side)
        first = [self.view_a(images, generator) for _ in range(self.count - 1)]
        joined = first[0] if len(first) == 1 else torch.cat(first)
        return joined, self.view_b(images, generator)


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
