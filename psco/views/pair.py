"""Two views of every image, reproducible step by step, by own or by other people's transforms."""

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


def step_generator(seed: int, step: int, share: tuple[int, int] | None = None) -> torch.Generator:
    """Give the random numbers of one step of training, which depend on seed and step only.

    A run that resumes at a step so continues as if it had never stopped.

    Parameters
    ----------
    seed
        Any integer; it chooses the order in which the streams of random numbers are used.
    step
        From 0; under one seed, no two of 2**32 steps share a stream.
    share
        First row and size of the whole batch, if only some of its rows are here: they get the
        numbers that they have in the whole batch, see `BatchSliceGenerator`.

    Returns
    -------
    torch.Generator
        On the CPU.
    """
    # PyTorch's generator on the CPU uses the low 32 bits of its seed only. A hash of both numbers
    # would so repeat within some 2**16 steps; a permutation of the steps chosen by the seed
    # does not. Every round is invertible modulo 2**32: an odd factor, then a shifted xor.
    key = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    mixed = step % WORD
    for place in range(0, 16, 4):
        mixed = (mixed ^ int.from_bytes(key[place : place + 4], "little")) * 0x9E3779B1 % WORD
        mixed ^= mixed >> 15
    return fresh_generator(mixed, None if share is None else BatchSliceGenerator(*share))


@dataclass(frozen=True)
class CallableView:
    """A view made by any function of a batch, such as a transform of torchvision or kornia.

    The function is called with (B, C, H, W) uint8 images and gives (B, c, h, w) floating-point
    ones, normalised as the encoder expects. PyTorch's global random state is set from the
    generator before the call and put back after it, so a function whose random numbers come from
    PyTorch is as reproducible as the library's own views. Random numbers from elsewhere, such as
    Python's ``random``, are not covered.

    Transforms of torchvision treat a whole batch alike; to give each image random numbers of its
    own, call the transform for each and stack the results. Where several processes share a batch,
    the function sees the share of each, under a seed of its own.

    Parameters
    ----------
    function
        ``f(images) -> images``.
    """

    function: Callable[[Tensor], Tensor]

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Call the function under the generator's random numbers and check what it gives.

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
            raise InputError(f"{self._name} must give a tensor, not {type(result).__name__}")
        if not result.is_floating_point() or result.ndim != 4 or len(result) != len(images):
            raise InputError(
                f"{self._name} must give a floating-point tensor of shape "
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
        """Draw both views of (B, C, H, W) uint8 images; the second uses the later numbers."""
        sides = {v.source_side if isinstance(v, View) else None for v in (self.view_a, self.view_b)}
        if len(sides) == 1 and (side := sides.pop()) is not None:
            # Each view would do the same by itself: shrinking once takes half the time.
            images = shrink(images, side)
        first = self.view_a(images, generator)
        return first, self.view_b(images, generator)


def as_view(view: AnyView) -> View | CallableView:
    """Wrap a function of images alone; views are given back as they are.

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
