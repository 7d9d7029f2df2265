"""The first stage of CACTUs: codes of all training images, learnt without labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from psco.errors import InputError
from psco.methods.base import Batch
from psco.methods.moco import MoCo
from psco.methods.stages import Artefact, Stage, StageInputs
from psco.networks.generative import ACAI, ACAITraining
from psco.networks.networks import Networks
from psco.views import Crop, Flip, TwoViews, View

EncoderName = Literal["acai", "pixels", "moco", "random"]
ENCODERS = get_args(EncoderName)
CODE = 256  # numbers in a code, at most
_CHUNK = 512  # images encoded at a time
_IMAGES_PER_COMPONENT = 8
_ACAI_BATCH = 64
_ACAI_RATE = 3e-4  # published: 1e-4, for trainings that are 30 times longer
_MOCO_BATCH = 256


class EncodingStage(Stage):
    """Ends with the artefact ``codes``, (n, d) float16, one row per training image."""

    name = "encode"
    inputs: StageInputs

    def encoded(self, encode: Callable[[np.ndarray], Tensor]) -> Artefact:
        """Return the codes of all images, given a function of indices (B,) to codes (B, d)."""
        number = len(self.inputs)
        with torch.no_grad():
            parts = [
                encode(np.arange(start, min(start + _CHUNK, number)))
                for start in range(0, number, _CHUNK)
            ]
        return {"codes": torch.cat(parts).half()}


class TrainACAI(EncodingStage):
    """Train `ACAI`; a unit is a step of 64 images.

    Parameters
    ----------
    epochs
        Passes over the images.
    """

    def __init__(self, epochs: float) -> None:
        self._epochs = epochs
        self._training: ACAITraining

    def start(self, inputs: StageInputs) -> int:
        """Build auto-encoder and critic, for images of 32 px, or of 64 px if they are larger."""
        self.inputs = inputs
        self._side = 32 if inputs.format.size <= 32 else 64
        model = ACAI(inputs.format.channels, self._side)
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._training = ACAITraining(model, _ACAI_RATE)
        # White paper is far from the zeros that an untrained decoder draws.
        first = inputs.unit(inputs.shuffled(0, _ACAI_BATCH), self._side)
        model.start_at(first.mean(dim=(0, 2, 3)))
        return max(1, round(self._epochs * inputs.batches_per_epoch(_ACAI_BATCH)))

    def advance(self, unit: int) -> str:
        """Train on the next batch."""
        indices = self.inputs.shuffled(unit, _ACAI_BATCH)
        error = self._training.step(self.inputs.unit(indices, self._side))
        return f"squared error {float(error):.4f}"

    def state_dict(self) -> dict[str, Any]:
        """Return weights and momenta."""
        return self._training.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._training.load_state_dict(state)

    def artefact(self) -> Artefact:
        """Return the codes of the trained encoder."""
        model = self._training.model
        return self.encoded(lambda i: model.encode(self.inputs.unit(i, self._side)))


class TrainMoCo(EncodingStage):
    """Train MoCo v2 on the backbone of the recipe; a unit is a step of 256 images.

    The codes are the features of the backbone. Views are the paper's for Omniglot: random crops of
    at least a fifth of the image, mirrored half of the time.

    Parameters
    ----------
    networks
        f and g; they are trained.
    epochs
        Passes over the images.
    """

    def __init__(self, networks: Networks, epochs: float) -> None:
        self._networks = networks.without_predictor()
        self._epochs = epochs

    def start(self, inputs: StageInputs) -> int:
        """Draw new weights, and build queue and views."""
        self.inputs, form = inputs, inputs.format
        self._batch = min(_MOCO_BATCH, len(inputs))
        for layer in self._networks.modules():
            if callable(reset := getattr(layer, "reset_parameters", None)):
                reset()
        self._moco = MoCo(self._networks, queue_size=16 * self._batch)
        parameters = [p for p in self._moco.parameters() if p.requires_grad]
        rate = 0.03 * self._batch / _MOCO_BATCH
        self._optimizer = torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=5e-4)
        view = View([Crop(), Flip()], form.size, list(form.mean), list(form.std))
        self._views = TwoViews(view, view)
        return max(1, round(self._epochs * inputs.batches_per_epoch(self._batch)))

    def advance(self, unit: int) -> str:
        """Train on two views of the next batch."""
        seed = int(torch.randint(2**62, ()))
        images = self.inputs.pixels(self.inputs.shuffled(unit, self._batch))
        view_a, view_b = self._views(images, torch.Generator().manual_seed(seed))
        loss, _ = self._moco.train().loss(Batch(view_a, view_b))
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return f"loss {float(loss.detach()):.3f}"

    def state_dict(self) -> dict[str, Any]:
        """Return weights, queue and momenta."""
        return {"moco": self._moco.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._moco.load_state_dict(state["moco"])
        self._optimizer.load_state_dict(state["optimizer"])

    def artefact(self) -> Artefact:
        """Return the features of the trained backbone."""
        backbone = self._moco.eval().backbone
        return self.encoded(lambda i: backbone(self.inputs.batch(i)))


class WhitenPixels(EncodingStage):
    """No training: up to 256 principal components of the pixels, each of variance 1."""

    def start(self, inputs: StageInputs) -> int:
        """Return the number of chunks of images that are added to the covariance."""
        self.inputs = inputs
        width = inputs.format.channels * inputs.format.size**2
        self._sums = torch.zeros(width, dtype=torch.float64)
        self._products = torch.zeros(width, width, dtype=torch.float64)
        return -(-len(inputs) // _CHUNK)

    def advance(self, unit: int) -> str:
        """Add the next images to the covariance."""
        start = unit * _CHUNK
        x = self._pixels(np.arange(start, min(start + _CHUNK, len(self.inputs)))).double()
        self._sums += x.sum(dim=0)
        self._products += x.T @ x
        return f"{start + len(x)} images"

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"sums": self._sums, "products": self._products}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self._sums, self._products = state["sums"], state["products"]

    def artefact(self) -> Artefact:
        """Return the whitened images."""
        mean = self._sums / len(self.inputs)
        covariance = self._products / len(self.inputs) - torch.outer(mean, mean)
        variances, directions = torch.linalg.eigh(covariance)  # ascending
        # With as many components as images, all images would be equally far from one another.
        most = min(CODE, max(1, len(self.inputs) // _IMAGES_PER_COMPONENT))
        kept = min(most, int((variances > 1e-6 * variances[-1]).sum()))
        scaled = directions[:, -kept:] / variances[-kept:].sqrt()  # (width, d)
        return self.encoded(lambda i: ((self._pixels(i).double() - mean) @ scaled).float())

    def _pixels(self, indices: np.ndarray) -> Tensor:  # (B, width)
        return self.inputs.unit(indices).flatten(1)


class NoCodes(EncodingStage):
    """Nothing at all, for clusters that are drawn at random."""

    def start(self, inputs: StageInputs) -> int:
        """Return 1: there is nothing to do, once."""
        self.inputs = inputs
        return 1

    def advance(self, _unit: int) -> str:
        """Do nothing."""
        return "no codes"

    def state_dict(self) -> dict[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing."""

    def artefact(self) -> Artefact:
        """Return codes of length 0."""
        return {"codes": torch.zeros(len(self.inputs), 0)}


def encoding_stage(encoder: EncoderName, networks: Networks, epochs: float) -> EncodingStage:
    """Return the stage that makes codes.

    Parameters
    ----------
    encoder
        ``acai``, ``pixels`` (whitened), ``moco`` on the backbone of the recipe, or ``random`` for
        none.
    networks
        f and g, which ``moco`` trains.
    epochs
        Length of the training of ``acai`` and ``moco``, > 0.

    Raises
    ------
    InputError
        If there is no such encoder.
    """
    if encoder == "acai":
        return TrainACAI(epochs)
    if encoder == "moco":
        return TrainMoCo(networks, epochs)
    if encoder == "pixels":
        return WhitenPixels()
    if encoder == "random":
        return NoCodes()
    raise InputError(f"encoder must be one of {', '.join(ENCODERS)}, got {encoder!r}")
