"""What a part of a view is, and what all parts share: range checks and coin tosses."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from psco.errors import InputError


class Part(Protocol):
    """One random operation on a batch of images, such as a crop or a flip.

    A part is called as ``part(images, size, generator)``. The images are (B, C, H, W) float32 in
    [0, 1], and so is what it gives back; a part that resizes gives (B, C, size, size) and takes
    uint8 images as well. All random numbers come from ``generator``, a generator on the CPU, and
    how many are drawn depends on B only, so that the parts after it see the same numbers whatever
    the images are. Numbers for each image are drawn by `uniform`, `normal` and `integers`, so that
    they do not depend on how many processes share a batch.

    ``resizes`` says whether the part brings the images to the side ``size``; parts that do not
    resize ignore ``size``.
    """

    resizes: ClassVar[bool]

    def __call__(self, images: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Apply the operation with fresh random numbers for every image."""
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
    """Random numbers for some rows of a batch, the same that the whole batch would give them.

    They are drawn for all images of the batch; `uniform`, `normal` and `integers` keep those of
    the rows. A batch that several processes share so has the views that it has in one.

    Parameters
    ----------
    first
        The first of the rows.
    total
        Images in the whole batch.
    """

    def __new__(cls, first: int, total: int) -> BatchSliceGenerator:  # noqa: ARG004, D102
        return super().__new__(cls)

    def __init__(self, first: int, total: int) -> None:
        self.first, self.total = first, total


class SameOnBatchGenerator(torch.Generator):
    """Random numbers that are drawn for one image and serve all images of a batch.

    What becomes of an image then does not depend on the others, nor on its place among them.
    """


def fresh_generator(seed: int, like: torch.Generator | None = None) -> torch.Generator:
    """Make a generator on the CPU that treats images as ``like`` does: as a share, or alike."""
    made = torch.Generator()
    if isinstance(like, BatchSliceGenerator):
        made = BatchSliceGenerator(like.first, like.total)
    elif isinstance(like, SameOnBatchGenerator):
        made = SameOnBatchGenerator()
    return made.manual_seed(seed)


def uniform(
    count: int, *shape: int, generator: torch.Generator, dtype: torch.dtype | None = None
) -> Tensor:
    """Draw numbers from [0, 1) for each image: (count, *shape), on the CPU."""
    drawn = torch.rand(_drawn_for(count, generator), *shape, generator=generator, dtype=dtype)
    return _kept(drawn, count, generator)


def normal(count: int, *shape: int, generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers for each image: (count, *shape), on the CPU."""
    drawn = torch.randn(_drawn_for(count, generator), *shape, generator=generator)
    return _kept(drawn, count, generator)


def integers(below: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw one of 0, ..., below − 1 for each image: (count,) int64, on the CPU."""
    drawn = torch.randint(below, (_drawn_for(count, generator),), generator=generator)
    return _kept(drawn, count, generator)


def _drawn_for(count: int, generator: torch.Generator) -> int:
    if isinstance(generator, SameOnBatchGenerator):
        return 1
    return generator.total if isinstance(generator, BatchSliceGenerator) else count


def _kept(drawn: Tensor, count: int, generator: torch.Generator) -> Tensor:
    if isinstance(generator, SameOnBatchGenerator):
        return drawn.expand(count, *drawn.shape[1:]).clone()  # callers may write into it
    first = generator.first if isinstance(generator, BatchSliceGenerator) else 0
    return drawn[first : first + count]


def bernoulli(count: int, probability: float, generator: torch.Generator) -> Tensor:
    """Toss one coin per image.

    Returns
    -------
    Tensor
        (count,) bool, on the CPU; each True with the given probability.
    """
    return uniform(count, generator=generator) < probability


def per_image(values: Tensor, images: Tensor) -> Tensor:
    """Bring one value per image to where the images are, in a shape that broadcasts over them.

    Parameters
    ----------
    values
        (B,), of any type, on any device.
    images
        (B, C, H, W).

    Returns
    -------
    Tensor
        (B, 1, 1, 1), on the images' device.
    """
    return values.to(images.device)[:, None, None, None]
