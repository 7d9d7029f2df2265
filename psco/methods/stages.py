"""Work that a method does before its first training step, in stages that a kill cannot undo.

A method returns its stages from `Method.stages`, in order: train an auto-encoder, cluster its
codes, fit a generator. The trainer runs each to its end, writes its result, the *artefact*, into
the run folder with a checksum, and hands it to `Method.use_artefact`. A run that is resumed loads
the artefacts that exist and continues the stage that was interrupted.

The contract that makes a resumed stage bit-identical:

- A stage is a sequence of units, such as optimiser steps or partitions. Unit u may depend on the
  inputs, on the state, and on torch's global random numbers, and on nothing else. The trainer seeds
  them before `Stage.start` and before each unit, from (seed, stage, unit) alone.
- `Stage.state_dict` holds everything that the next unit depends on.
- The artefact is a dict of tensors. It must not depend on the number of interruptions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import Tensor

from psco.networks.image_format import ImageFormat
from psco.ops.order import epoch_order
from psco.views import plain_view, to_batch

if TYPE_CHECKING:  # a method loads no data
    from psco.data.imageset import ImageArray

Artefact = dict[str, Tensor]
_ORDERS = 2**32  # epochs of stages are numbered from here: other orders than those of training


@dataclass(frozen=True)
class StageInputs:
    """What a stage works on.

    Parameters
    ----------
    images
        The training images, (n, H, W, C) uint8.
    format
        Size and normalisation of what the network sees.
    seed
        Seed of the run.
    artefacts
        The results of the earlier stages by name.
    """

    images: ImageArray
    format: ImageFormat
    seed: int
    artefacts: Mapping[str, Artefact]

    def __len__(self) -> int:
        return len(self.images)

    def pixels(self, indices: np.ndarray) -> Tensor:
        """Return images (B,) as they are stored: (B, C, H, W) uint8."""
        return to_batch(self.images[indices])

    def batch(self, indices: np.ndarray) -> Tensor:
        """Return images (B,) as the network sees them at test: (B, C, size, size), normalised."""
        f = self.format
        return plain_view(self.pixels(indices), f.size, f.mean, f.std)

    def unit(self, indices: np.ndarray, size: int | None = None) -> Tensor:
        """Return images (B,) with pixels in [0, 1]: (B, C, size, size); by default of its size."""
        zeros, ones = [0.0] * self.format.channels, [1.0] * self.format.channels
        side = self.format.size if size is None else size
        return plain_view(self.pixels(indices), side, zeros, ones)

    def shuffled(self, unit: int, batch_size: int) -> np.ndarray:
        """Return the indices (B,) of batch ``unit`` of shuffled epochs without their last rest."""
        epoch, place = divmod(unit, self.batches_per_epoch(batch_size))
        order = epoch_order(self.seed, _ORDERS + epoch, len(self))
        return order[place * batch_size : (place + 1) * batch_size]

    def batches_per_epoch(self, batch_size: int) -> int:
        """Return the number of whole batches in an epoch, at least 1."""
        return max(1, len(self) // batch_size)


class Stage(ABC):
    """One piece of work before the first training step; see the top of this file.

    Attributes
    ----------
    name
        Names the artefact, ``stages/NAME.safetensors`` in the run folder.
    """

    name: ClassVar[str]

    def check(self, images: int) -> None:  # noqa: B027 (a hook)
        """Raise InputError if the stage cannot work on so many images; nothing is written yet."""

    @abstractmethod
    def start(self, inputs: StageInputs) -> int:
        """Prepare the first unit, and return the number of units, at least 1."""

    @abstractmethod
    def advance(self, unit: int) -> str:
        """Do the work of a unit (from 0), and return a short status for the progress bar."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the next unit depends on: tensors, numbers, strings, lists and dicts."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned; `start` was called before."""

    @abstractmethod
    def artefact(self) -> Artefact:
        """Return the result, after the last unit."""
