"""Meta-test: accuracy over many seeded few-shot tasks (Section 3.3 of the paper)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from psco.data import ImageSet
from psco.data.tasks import Tasks, sample_tasks
from psco.encoder import Embedder, load
from psco.errors import InputError
from psco.methods.psco import prototypes

_TASKS_AT_ONCE = 64  # bounds the memory of the gathered representations


@dataclass(frozen=True)
class Report:
    """The accuracy of one model in one setting.

    Parameters
    ----------
    mean, ci95
        Accuracy in percent, and half the width of its 95 % interval: 1.96 s / sqrt(tasks) with the
        unbiased standard deviation s over the tasks.
    per_task
        Accuracy of every task in percent.
    left_out
        Classes with too few images for such a task.
    """

    data: str
    split: str
    rule: str
    ways: int
    shots: int
    queries: int
    tasks: int
    seed: int
    mean: float
    ci95: float
    left_out: int = 0
    per_task: tuple[float, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Give everything but the single tasks."""
        return {name: value for name, value in asdict(self).items() if name != "per_task"}

    def to_json(self) -> str:
        """Write everything as a JSON object."""
        return json.dumps(asdict(self))

    def to_markdown(self) -> str:
        """Write setting and accuracy as a row of a Markdown table."""
        setting = f"{self.ways}-way {self.shots}-shot"
        return f"| {self.data} | {setting} | {self.mean:.2f} ± {self.ci95:.2f} | {self.tasks} |"


def evaluate(
    model: Embedder | str | Path,
    images: ImageSet,
    ways: int = 5,
    shots: int = 1,
    queries: int = 15,
    tasks: int | Tasks = 2000,
    seed: int = 0,
) -> Report:
    """Measure few-shot accuracy with the prototype rule; inductive: every query stands alone.

    Parameters
    ----------
    model
        Anything that embeds images, or a run folder.
    images
        A labelled image set, best of classes that training has not seen.
    ways, shots, queries, tasks
        Classes in a task, supports and queries of a class, number of tasks; or the tasks
        themselves, which then decide the other three.
    seed
        Decides the tasks: the same seed gives every model the same ones.

    Raises
    ------
    InputError
        If the images have no labels, or too few of them.
    """
    embedder = load(model) if isinstance(model, (str, Path)) else model
    if not isinstance(tasks, Tasks):
        tasks = draw_tasks(images, [(ways, shots)], queries, tasks, seed)[0]
    return evaluate_tasks(embedder, images, [tasks])[0]


def draw_tasks(
    images: ImageSet, settings: Sequence[tuple[int, int]], queries: int, tasks: int, seed: int
) -> list[Tasks]:
    """Draw the tasks of several (ways, shots) from labelled images."""
    if images.labels is None:
        raise InputError(f"{images.name!r} has no labels: evaluation needs a folder for each class")
    return [sample_tasks(images.labels, w, k, queries, tasks, seed) for w, k in settings]


def evaluate_tasks(model: Embedder, images: ImageSet, drawn: Sequence[Tasks]) -> list[Report]:
    """Evaluate several sets of tasks at the price of embedding the images once."""
    for tasks in drawn:
        tasks.check(np.empty(0) if images.labels is None else images.labels)
    query, support = model.embed(images.images)
    return [_report(classify_tasks(query, support, tasks), tasks, images) for tasks in drawn]


def _report(predicted: Tensor, tasks: Tasks, images: ImageSet) -> Report:
    ways, shots = tasks.setting
    right = (predicted == torch.arange(ways)[:, None]).float()  # (T, N, Q)
    accuracy = 100 * right.mean(dim=(1, 2)).double()  # (T,)
    spread = accuracy.std().item() if len(tasks) > 1 else math.nan
    return Report(
        data=images.name,
        split=images.split,
        rule="prototype",
        ways=ways,
        shots=shots,
        queries=predicted.shape[2],
        tasks=len(tasks),
        seed=tasks.seed,
        mean=accuracy.mean().item(),
        ci95=1.96 * spread / math.sqrt(len(tasks)),
        left_out=tasks.left_out,
        per_task=tuple(accuracy.tolist()),
    )


def classify_tasks(query: Tensor, support: Tensor, tasks: Tasks) -> Tensor:
    """Predict the class of every query as argmax_y q·c_y.

    Parameters
    ----------
    query, support
        (n, d) representations of the whole image set, of unit length.
    tasks
        Indices into them: T tasks of N ways with K shots and Q queries.

    Returns
    -------
    Tensor
        (T, N, Q) int64 in 0..N−1; the true class of row n is n.
    """
    ways, shots = tasks.support.shape[1:]
    labels = torch.arange(ways).repeat_interleave(shots)  # (NK,)
    predicted = []
    for begin in range(0, len(tasks), _TASKS_AT_ONCE):
        s = torch.from_numpy(tasks.support[begin : begin + _TASKS_AT_ONCE]).flatten(1)  # (t, NK)
        q = torch.from_numpy(tasks.query[begin : begin + _TASKS_AT_ONCE])  # (t, N, Q)
        c = prototypes(support[s], labels.expand(len(s), -1), ways)  # (t, N, d)
        scores = query[q].flatten(1, 2) @ c.transpose(1, 2)  # (t, NQ, N)
        predicted.append(scores.argmax(dim=2).view_as(q))
    return torch.cat(predicted)
