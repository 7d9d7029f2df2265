"""SGD on all weights in one go: see ``sgd.c``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from psco.ops.native.build import call, library


def suits_sgd(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], momenta: Sequence[Tensor]
) -> bool:
    """Say whether `sgd_step` takes these: numbers in the same order in memory, without gaps.

    Gradients and momenta are taken to be of the kind of their weights, as torch has it.
    """
    if not weights or library() is None:
        return False
    order = [weight.stride() for weight in weights]
    return (
        order == [gradient.stride() for gradient in gradients]
        and order == [momentum.stride() for momentum in momenta]
        and all(map(_suits, weights))
    )


def _suits(weight: Tensor) -> bool:
    dense = weight.is_contiguous() or weight.is_contiguous(memory_format=torch.channels_last)
    return dense and weight.dtype == torch.float32 and weight.device.type == "cpu"


def sgd_step(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    momenta: Sequence[Tensor],
    rate: float,
    momentum: float,
    decay: float,
) -> None:
    """Take a step of SGD: momenta m and weights w are changed in place.

    With gradients g it is m ← μ m + g + λ w, w ← w − η m.

    Parameters
    ----------
    weights, gradients, momenta
        Tensors of the same shapes.
    rate, momentum, decay
        η, μ and λ.
    """
    sizes = [weight.numel() for weight in weights]
    tensors = (list(weights), list(gradients), list(momenta))
    call("sgd_step", *tensors, sizes, len(sizes), rate, momentum, decay, torch.get_num_threads())
