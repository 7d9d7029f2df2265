"""UMTRA: MAML on random images and views of them (Khodadadeh et al., NeurIPS 2019)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from psco.methods.base import EPISODIC_SETTINGS, METHODS, Batch, Kind, Logs
from psco.methods.maml import MAML
from psco.networks.networks import Networks
from psco.ops.inner_loop import Statistics


@METHODS.register("umtra")
class UMTRA(MAML):
    """Every image of a task is a class: the image is its support, a view of it the query.

    Random images rarely share a class if there are many classes. The augmentation is ``view_b`` of
    the recipe, by default the published one for Omniglot: shifts by up to 6 of 28 pixels, and half
    of the pixels painted over.

    Parameters
    ----------
    networks
        f, see `MAML`; the heads are not used.
    ways
        N of a training task; a test task can have no more ways.
    tasks, inner_rate, inner_steps, test_steps, first_order, statistics
        See `MAML`. Published: 32 tasks, a rate of 0.01 on a network that averages its last feature
        maps, 5 steps in training and 50 at test time, and ``statistics=query``.
    """

    title, images_are_classes = "UMTRA", True
    kind: ClassVar[Kind] = "unsupervised"
    views: ClassVar[Literal[1, 2]] = 2
    paper = "Khodadadeh, Bölöni and Shah, NeurIPS 2019"
    summary = "MAML on tasks whose classes are random images, and whose queries are views of them"
    settings: ClassVar = {
        **EPISODIC_SETTINGS,
        "views": {
            "view_a": {},
            "view_b": {
                "affine": {
                    "rotation": 0.0,
                    "shear": 0.0,
                    "log_scale": [0.0, 0.0],
                    "shift": 0.43,
                    "fill": "auto",
                },
                "dropout": {"fraction": 0.5},
            },
        },
    }

    def __init__(
        self,
        networks: Networks,
        ways: int = 20,
        tasks: int | None = None,
        inner_rate: float = 0.004,
        inner_steps: int = 5,
        test_steps: int = 50,
        first_order: bool = False,
        statistics: Statistics = "support",
    ) -> None:
        super().__init__(
            networks,
            ways,
            shots=1,
            queries=1,
            tasks=tasks,
            inner_rate=inner_rate,
            inner_steps=inner_steps,
            test_steps=test_steps,
            first_order=first_order,
            statistics=statistics,
        )

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return MAML's loss for view_a (T·N, C, H, W) as supports and view_b as queries."""
        pairs = torch.stack([batch.view_a, batch.view_b], dim=1)  # (TN, 2, C, H, W)
        return super().loss(batch._replace(view_a=pairs.flatten(0, 1)))
