"""The least time of a step: its floating-point operations at the speed of a matrix product.

Counted are the multiplications and additions of the convolutions, the heads and the products with
the queue, two for each multiply-add. Left out are normalisation, pooling, views, the optimiser and
Sinkhorn's products with vectors: little arithmetic, and none that a matrix unit does. The limit
shows how much there is left to gain.
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

# Too large for the second-level cache, and quick enough to repeat.
GEMM_SIZES = (1024, 1536, 2048, 3072)
_TRIES = 3


def layer_operations(network: nn.Module, x: Tensor) -> list[tuple[str, int]]:
    """Count the operations of convolutions and linear layers in a forward pass, in call order.

    Parameters
    ----------
    network
        Any module.
    x
        A batch for it; only shapes matter, so it may be on the device ``meta``.

    Returns
    -------
    list
        Kind, ``"convolutions"`` or ``"heads"`` (linear layers), and operations of each layer.
    """
    counts: list[tuple[str, int]] = []

    def count(layer: Any, _: object, y: Tensor) -> None:
        # Each output is a sum over one filter, or over one row of the weights.
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
    views = recipe.views.count - 1  # online ones
    for place, (kind, operations) in enumerate(online):
        # Backward: one product for the weights, and one for the input, except for the images.
        total[kind] += views * operations * (3 if place else 2)

    options = recipe.method.options
    M, K, d = options["queue_size"], options["shots"], recipe.heads.out
    similarity = 2 * N * M * d  # z with the queue, no gradient
    pseudo_task = 2 * N * (N * K) * d  # q with the shots, forward and back to q
    keys = M + N * options["batch_negatives"]
    moco = 2 * N * keys * d if options["auxiliary"] == "moco" else 0  # the same with the queue
    queue = similarity + views * (2 * pseudo_task + 2 * moco)
    return {name: recipe.train.accumulate * n for name, n in {**total, "queue": queue}.items()}


def gemm_speed(sizes: Sequence[int] = GEMM_SIZES) -> float:
    """Return the operations per second of large float32 matrix products.

    For each size the best of a few tries, which excludes interruptions; of these the median over
    the sizes, which excludes a size that happens to fit the processor.
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
