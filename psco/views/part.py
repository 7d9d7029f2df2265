"""The protocol of view parts, checks of their options, and random numbers for each image."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from psco.errors import InputError


class Part(Protocol):
    """One random operation on a batch of images, such as a crop or a flip.

    A part is called as ``part(images, size, generator)``. Its input and output are (B, C, H, W)
    float32 in [0, 1]. A part that resizes returns (B, C, size, size) and also accepts uint8. All
    random numbers come from ``generator``, a generator on the CPU; how many are drawn depends on B
    only, so that later parts see the same numbers for any images. Numbers for each image are drawn
    by `uniform`, `normal` and `integers`, so that they do not depend on how a batch is split over
    processes.

    ``resizes`` tells whether the part resizes images to the side ``size``; other parts ignore
    ``size``.
    """

    resizes: ClassVar[bool]

    def __call__(self, images: Tensor, size: int, generator: torch.Generator, /) -> Tensor:
        """Apply the operation with new random numbers for every image."""
        ...


def check_probability(part: str, probability: float, name: str = "probability") -> None:
    """Raise InputError unless a probability of a part is in [0, 1]."""
    check_range(part, name, probability, 0, 1)


def check_range(part: str, name: str, value: float, least: float, most: float) -> None:
    """Raise InputError unless a number is in [least, most]."""
    if not least <= value <= most:
        raise InputError(f"{part}: {name} must be in [{least:g}, {most:g}], not {value!r}")


def check_bounds(
    part: str, name: str, span: tuple[float, float], least: float, most: float
) -> None:
    """Raise InputError unless ``span`` is a pair with least <= low <= high <= most."""
    if not (len(span) == 2 and least <= span[0] <= span[1] <= most):
        raise InputError(
            f"{part}: {name} must be {least:g} <= low <= high <= {most:g}, not {span!r}"
        )


def check_span(part: str, name: str, span: tuple[float, float], most: float = math.inf) -> None:
    """Raise InputError unless ``span`` is a pair with 0 < low <= high <= most, and finite."""
    allowed = f"0 < low <= high <= {most:g}" if math.isfinite(most) else "0 < low <= high"
    fits = len(span) == 2 and 0 < span[0] <= span[1] <= most and math.isfinite(span[1])
    if not fits:
        raise InputError(f"{part}: {name} must be {allowed}, not {span!r}")


class BatchSliceGenerator(torch.Generator):
    """A generator for some rows of a batch, with the random numbers they have in the whole batch.

    `uniform`, `normal` and `integers` draw numbers for the whole batch and keep those of the rows.
    A batch that is split over processes therefore has the same views as in a single process.

    Parameters
    ----------
    first
        The first of the rows.
    total
        Size of the whole batch.
    """

    def __new__(cls, *_: int) -> BatchSliceGenerator:
        """Create the generator; torch.Generator takes no such arguments."""
        return super().__new__(cls)

    def __init__(self, first: int, total: int) -> None:
        self.first = first
        self.total = total


class SameOnBatchGenerator(torch.Generator):
    """A generator with the same random numbers for every image of a batch.

    The view of an image then does not depend on the other images of the batch.
    """


def fresh_generator(seed: int, like: torch.Generator | None = None) -> torch.Generator:
    """Return a new generator on the CPU, of the same kind as ``like``."""
    new = torch.Generator()
    if isinstance(like, BatchSliceGenerator):
        new = BatchSliceGenerator(like.first, like.total)
    elif isinstance(like, SameOnBatchGenerator):
        new = SameOnBatchGenerator()
    return new.manual_seed(seed)


def uniform(
    count: int, *shape: int, generator: torch.Generator, dtype: torch.dtype | None = None
) -> Tensor:
    """Draw numbers from [0, 1) for each image: (count, *shape), on the CPU."""
    drawn = torch.rand(_rows_to_draw(count, generator), *shape, generator=generator, dtype=dtype)
    return _own_rows(drawn, count, generator)


def normal(count: int, *shape: int, generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers for each image: (count, *shape), on the CPU."""
    drawn = torch.randn(_rows_to_draw(count, generator), *shape, generator=generator)
    return _own_rows(drawn, count, generator)


def integers(below: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw one of 0, ..., below − 1 for each image: (count,) int64, on the CPU."""
    drawn = torch.randint(below, (_rows_to_draw(count, generator),), generator=generator)
    return _own_rows(drawn, count, generator)


def _rows_to_draw(count: int, generator: torch.Generator) -> int:
    if isinstance(generator, SameOnBatchGenerator):
        return 1
    return generator.total if isinstance(generator, BatchSliceGenerator) else count


def _own_rows(drawn: Tensor, count: int, generator: torch.Generator) -> Tensor:
    if isinstance(generator, SameOnBatchGenerator):
        return drawn.expand(count, *drawn.shape[1:]).clone()  # callers may write into it
    first = generator.first if isinstance(generator, BatchSliceGenerator) else 0
    return drawn[first : first + count]


def bernoulli(count: int, probability: float, generator: torch.Generator) -> Tensor:
    """Draw a Boolean for each image.

    Returns
    -------
    Tensor
        (count,) bool, on the CPU; each True with the given probability.
    """
    return uniform(count, generator=generator) < probability


def per_image(values: Tensor, images: Tensor) -> Tensor:
    """Move one value per image to the device of the images, in a shape that broadcasts over them.

    Parameters
    ----------
    values
        (B,), of any type, on any device.
    images
        (B, C, H, W).

    Returns
    -------
    Tensor
        (B, 1, 1, 1), on the device of the images.
    """
    return values.to(images.device)[:, None, None, None]
