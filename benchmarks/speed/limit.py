"""The least time of a step: its floating-point operations at the speed of a matrix product.

Counted are the multiplications and additions of the convolutions, the heads and the products with
the queue, two for each multiply-add. Left out is what a matrix unit does not do and what is small
beside it: normalisation, pooling, views, Sinkhorn's products with vectors, the optimiser. So the
limit cannot be reached; how near a step comes says what is left to gain.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from psco.recipes.build import build_method
from psco.recipes.recipe import Recipe

GEMM_SIZES = (
    1024,
    1536,
    2048,
    3072,
)  # too large for the second-level cache, quick enough to repeat
_TRIES = 3


def layer_operations(network: nn.Module, x: Tensor) -> list[tuple[str, int]]:
    """Count a forward pass of convolutions and linear layers, in the order they are used.

    Parameters
    ----------
    network
        Any module.
    x
        A batch for it; shapes are all that matters, so it may be on the device ``meta``.

    Returns
    -------
    list
        ``"convolutions"`` or ``"heads"`` (linear layers) with the operations of each layer.
    """
    counts: list[tuple[str, int]] = []

    def count(layer: Any, _: object, y: Tensor) -> None:
        # Every output number is a sum over one filter, or one row of the weights.
        kind = "convolutions" if isinstance(layer, nn.Conv2d) else "heads"
        counts.append((kind, 2 * y.numel() * layer.weight[0].numel()))

    layers = [m for m in network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    handles = [layer.register_forward_hook(count) for layer in layers]
    try:
        with torch.no_grad():
            network(x)
    finally:
        for handle in handles:
            handle.remove()
    return counts


def step_operations(recipe: Recipe) -> dict[str, int]:
    """Count the operations of one PsCo step: forward, backward, momentum forward.

    Returns
    -------
    dict
        Operations in ``convolutions``, ``heads`` and ``queue``.
    """
    with torch.device("meta"):
        method: Any = build_method(recipe)
        N, image = recipe.train.batch_size, recipe.image
        x = torch.empty(N, image.channels, image.size, image.size)
        momentum = layer_operations(nn.Sequential(method.backbone, method.projector), x)
        online = layer_operations(
            nn.Sequential(method.backbone, method.projector, method.predictor), x
        )
    total = {"convolutions": 0, "heads": 0}
    for kind, operations in momentum:
        total[kind] += operations
    for place, (kind, operations) in enumerate(online):
        # Backward: one product for the weights, one for the input, which images do not need.
        total[kind] += operations * (3 if place else 2)

    options = recipe.method.options
    M, K, d = options["queue_size"], options["shots"], recipe.heads.out
    similarity = 2 * N * M * d  # z with the queue, no gradient
    pseudo_task = 2 * N * (N * K) * d  # q with the shots, forward and back to q
    keys = M + N * options["batch_negatives"]
    moco = 2 * N * keys * d if options["auxiliary"] == "moco" else 0  # the same with the queue
    queue = similarity + 2 * pseudo_task + 2 * moco
    return {name: recipe.train.accumulate * n for name, n in {**total, "queue": queue}.items()}


def gemm_speed(sizes: Sequence[int] = GEMM_SIZES) -> float:
    """Measure how many operations a second large float32 matrix products sustain.

    The best of a few products of each size, and of these the median over the sizes: the best
    leaves out interruptions, the median the one size that happens to suit the processor.
    """
    return statistics.median(_best_speed(size) for size in sizes)


def _best_speed(size: int) -> float:
    a, b, c = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    torch.mm(a, b, out=c)
    times = []
    for _ in range(_TRIES):
        begin = time.perf_counter()
        torch.mm(a, b, out=c)
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / min(times)
