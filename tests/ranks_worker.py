"""What each rank in tests/training/test_distributed.py runs, with torchrun's variables set.

``python ranks_worker.py FOLDER NAME ...`` trains the named entries of `RUNS`, each in its own
folder, where every rank saves its state. It then checks ``psco.ops.ranks`` against what one process
computes for the whole batch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import psco
from psco.ops.ranks import SyncBatchNorm, all_sum, gather, own_rows, rank, synchronise, world_size
from psco.ops.sinkhorn import Similarity, sinkhorn
from psco.training.trainer import Trainer

SMALL = [
    "image={size: 16, source_size: 16, channels: 1, mean: [0.5], std: [0.25]}",
    "views.view_a={crop: {}, flip: {}}",
    "views.view_b={crop: {}}",
    "backbone={name: conv4, width: 8}",
    "heads={hidden: 32, out: 16}",
]
TRAIN = "train={batch_size: 32, log_steps: 1, steps: %d, learning_rate: %s, precision: %s%s}"
FEW = TRAIN % (3, 0.05, "64-true", "")
EVERY_PART = (
    "views.view_a={crop: {}, shift: {most: 0.2}, flip: {vertical: 0.5}, turn: {}, "
    "affine: {}, elastic: {}, stroke: {}, erase: {fill: noise}, jitter: {}, grey: {}, blur: {}}"
)
RUNS = {
    # Rounding can decide which of two nearly equal keys is selected. That does not happen in double
    # precision, and rarely in single precision at a low rate.
    "psco": ["method={name: psco, shots: 2, queue_size: 96}", TRAIN % (10, 0.05, "64-true", "")],
    "single": ["method={name: psco, shots: 2, queue_size: 96}", TRAIN % (50, 0.005, "32-true", "")],
    "variant": [
        "method={name: psco, shots: 3, queue_size: 90, batch_negatives: true, "
        "sinkhorn_epsilon: 0.01, ema_buffers: own, momentum_end: 1.0, filled_queue: true, "
        "own_view: true, reciprocal: 4, spare_shots: true}",
        TRAIN % (3, 0.05, "64-true", ", accumulate: 2, purity: true, average_last: 0.7"),
        EVERY_PART,
    ],
    "views": [
        "method={name: psco, shots: 2, queue_size: 96, own_view: true}",
        TRAIN % (4, 0.002, "64-true", ", optimizer: adamw, small_size: 12, small_until: 0.5"),
        "views.count=4",
        "views.shared_flip=0.5",
    ],
    "psco-byol": ["method={name: psco-byol, shots: 2, queue_size: 96}", FEW],
    "moco": ["method={name: moco, queue_size: 96}", FEW],
    "simclr": ["method={name: simclr}", FEW],
    "swav": ["method={name: swav, clusters: 20, queue_size: 48}", FEW],
    "byol": ["method={name: byol}", FEW],
    "supervised": ["method={name: supervised}", FEW],
    "protonets": ["method={name: protonets, ways: 4, shots: 1, queries: 3}", FEW],
}


def blobs() -> psco.ImageSet:
    """Return 120 images of soft spots on noise, in 10 classes by position."""
    random = np.random.default_rng(0)
    labels = np.arange(120) % 10
    centres = random.uniform(4, 16, (10, 2))[labels] + random.normal(0, 1, (120, 2))
    y, x = np.mgrid[:20, :20]
    far = (y - centres[:, 0, None, None]) ** 2 + (x - centres[:, 1, None, None]) ** 2
    pixels = 200 * np.exp(-far / 12) + random.uniform(0, 50, (120, 20, 20))
    return psco.ImageSet(pixels.astype(np.uint8)[..., None], labels, tuple("abcdefghij"))


def train_all(folder: Path, names: Iterable[str]) -> dict[str, psco.Run]:
    """Train some of `RUNS` and save the state of this rank as ``FOLDER/NAME-RANK.pt``."""
    runs = {}
    for name in names:
        # Not `psco.pretrain`: calibration would take longer than all of these runs.
        trainer = Trainer(
            blobs(),
            folder / name,
            "glyphs",
            [*SMALL, *RUNS[name]],
            rank_timeout=600,
            progress=False,
        )
        runs[name] = trainer.run()
        torch.save(trainer.loop.method.module.state_dict(), folder / f"{name}-{rank()}.pt")
    return runs


def check_gather() -> None:
    whole = torch.randn(3 * world_size(), 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3 * world_size(), 2, dtype=torch.float64)
    (whole.tanh() * weight).sum().backward()
    own = whole.detach()[own_rows(3)].requires_grad_()
    everything = gather(own.tanh())
    assert torch.equal(everything, whole.tanh())
    # Every rank has the same loss; that of training is their mean.
    (everything * weight).sum().div(world_size()).backward()
    torch.testing.assert_close(own.grad, whole.grad[own_rows(3)])
    assert torch.equal(gather(torch.tensor([rank()])), torch.arange(world_size()))


def check_batchnorm(make: type[nn.Module], shape: tuple[int, ...], **options: object) -> None:
    plain = make(5, **options).double()
    synced = make(5, **options).double()
    if plain.affine:
        nn.init.normal_(plain.weight)
        nn.init.normal_(plain.bias)
    synced.load_state_dict(plain.state_dict())
    synchronise(synced)
    assert isinstance(synced, SyncBatchNorm)
    for _ in range(2):
        whole = (3 + torch.randn(4 * world_size(), *shape, dtype=torch.float64)).requires_grad_()
        factor = torch.randn_like(whole)
        own = whole.detach()[own_rows(4)].requires_grad_()
        y = plain(whole)
        (y * factor).sum().backward()
        mine = synced(own)
        (mine * factor[own_rows(4)]).sum().backward()
        torch.testing.assert_close(mine, y[own_rows(4)])
        torch.testing.assert_close(own.grad, whole.grad[own_rows(4)])
    for parameter, twin in zip(synced.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(all_sum(parameter.grad), twin.grad)
    torch.testing.assert_close(synced.state_dict(), plain.state_dict())
    torch.testing.assert_close(synced.eval()(own), plain.eval()(own))


def check_plan(epsilon: float) -> None:
    z = F.normalize(torch.randn(4 * world_size(), 6, dtype=torch.float64), dim=1)
    queue = F.normalize(torch.randn(11, 6, dtype=torch.float64), dim=1)
    own = own_rows(4)
    plan = sinkhorn(Similarity(z[own], queue), epsilon, 3).dense() * 4  # rows sum to 1
    expected = sinkhorn(z @ queue.T, epsilon, 3)[own] * len(z)
    torch.testing.assert_close(plan, expected)


def main() -> None:
    """Run everything as one of several ranks."""
    train_all(Path(sys.argv[1]), sys.argv[2:])
    assert world_size() == int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    check_gather()
    check_batchnorm(nn.BatchNorm1d, (5,), affine=False)
    check_batchnorm(nn.BatchNorm2d, (5, 3, 2))
    check_batchnorm(nn.BatchNorm2d, (5, 3, 2), momentum=None)
    for epsilon in (0.05, 0.001):
        check_plan(epsilon)


if __name__ == "__main__":
    main()
