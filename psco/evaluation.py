"""Meta-test: accuracy over many seeded few-shot tasks (Section 3.3 of the paper)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
    tasks: int = 2000,
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
        Classes in a task, supports and queries of a class, number of tasks.
    seed
        Decides the tasks: the same seed gives every model the same ones.

    Raises
    ------
    InputError
        If the images have no labels, or too few of them.
    """
    embedder = load(model) if isinstance(model, (str, Path)) else model
    return evaluate_settings(embedder, images, [(ways, shots)], queries, tasks, seed)[0]


def evaluate_settings(
    model: Embedder,
    images: ImageSet,
    settings: list[tuple[int, int]],
    queries: int = 15,
    tasks: int = 2000,
    seed: int = 0,
) -> list[Report]:
    """Evaluate several (ways, shots) at the price of embedding the images once."""
    if images.labels is None:
        raise InputError(f"{images.name!r} has no labels: evaluation needs a folder for each class")
    drawn = [sample_tasks(images.labels, w, k, queries, tasks, seed) for w, k in settings]
    query, support = model.embed(images.images)
    reports = []
    for (ways, shots), sample in zip(settings, drawn, strict=True):
        right = (classify_tasks(query, support, sample) == torch.arange(ways)[:, None]).float()
        accuracy = 100 * right.mean(dim=(1, 2)).double()  # (T,)
        spread = accuracy.std().item() if tasks > 1 else math.nan
        reports.append(
            Report(
                data=images.name,
                split=images.split,
                rule="prototype",
                ways=ways,
                shots=shots,
                queries=queries,
                tasks=tasks,
                seed=seed,
                mean=accuracy.mean().item(),
                ci95=1.96 * spread / math.sqrt(tasks),
                left_out=sample.left_out,
                per_task=tuple(accuracy.tolist()),
            )
        )
    return reports


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
