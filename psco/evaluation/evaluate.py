"""Meta-test: accuracy over many seeded few-shot tasks, under any rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from psco.data import ImageSet
from psco.data.tasks import Tasks, sample_tasks
from psco.errors import InputError
from psco.evaluation.embed import Embedder, Encoder, load
from psco.evaluation.published import CROSS_DOMAIN
from psco.evaluation.result import Report, interval
from psco.evaluation.rules import RULES, Embeddings, Heads, Rule, SupportSet
from psco.evaluation.rules.prototype import resolve_adaptation
from psco.methods import Method
from psco.progress import Bar

_NUMBERS_AT_ONCE = 1 << 24  # gathered features of a batch of tasks: 64 MiB


Ways: TypeAlias = int | Literal["all"]


def evaluate(
    model: Embedder | str | Path,
    dataset: ImageSet,
    ways: Ways = 5,
    shots: int = 1,
    queries: int = 15,
    tasks: int | Tasks = 2000,
    rule: str | None = None,
    adapt_steps: int = 0,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> Report:
    """Measure few-shot accuracy.

    Parameters
    ----------
    model
        A run folder, or anything that embeds images.
    dataset
        Labelled images, preferably of classes that were not seen in training.
    ways, shots, queries, tasks
        Classes per task (``"all"`` that have enough images), supports and queries per class, and
        the number of tasks; or the tasks themselves, which then determine the other three.
    rule
        How queries are classified, a name in ``psco.RULES``; None for `default_rule`.
    adapt_steps
        More than 0 is short for the rule ``adapt`` with that many steps.
    seed
        Decides the tasks; with the same seed, all models get the same tasks.
    options
        Options of the rule.
    progress
        Show progress and the running mean on stderr.

    Raises
    ------
    InputError
        If the images have no labels or are too few, or the rule or an option does not exist.
    """
    embedder = load(model) if isinstance(model, (str, Path)) else model
    rule, options = resolve_rule(embedder, dataset, rule, options, adapt_steps)
    if not isinstance(tasks, Tasks):
        tasks = draw_tasks(dataset, [(ways, shots)], queries, tasks, seed)[0]
    return evaluate_tasks(embedder, dataset, [tasks], rule, options, progress)[0]


def default_rule(model: Embedder, images: ImageSet) -> str:
    """Return the rule under which the paper's tables test this model on these images.

    That is the method's ``rule``; on the cross-domain benchmarks, unless it was trained on the same
    data, its ``transfer_rule``: ``adapt`` for PsCo, ``linear`` for self-supervised methods.
    """
    if not isinstance(model, Encoder):
        return "prototype"
    return rule_for(model.method, model.trained_on, images.name)


def rule_for(method: Method | type[Method], trained_on: str | None, data: str) -> str:
    """Return the rule under which the paper tests a method; see `default_rule`."""
    crosses = data in CROSS_DOMAIN and trained_on != data
    return method.transfer_rule if crosses else method.rule


def resolve_rule(
    model: Embedder,
    images: ImageSet,
    rule: str | None,
    options: Mapping[str, Any] | None,
    adapt_steps: int = 0,
) -> tuple[str, dict[str, Any]]:
    """Return the name of the rule and the options given for it; see `evaluate`."""
    if rule is None:
        rule = "adapt" if adapt_steps else default_rule(model, images)
    return resolve_adaptation(rule, options, adapt_steps)


def draw_tasks(
    images: ImageSet, settings: Sequence[tuple[Ways, int]], queries: int, tasks: int, seed: int
) -> list[Tasks]:
    """Draw the tasks of several (ways, shots) from labelled images."""
    if images.labels is None:
        raise InputError(f"{images.name!r} has no labels: evaluation needs a folder for each class")
    sizes = np.bincount(images.labels)
    drawn = []
    for ways, shots in settings:
        number = int((sizes >= shots + queries).sum()) if ways == "all" else ways
        drawn.append(sample_tasks(images.labels, number, shots, queries, tasks, seed))
    return drawn


def evaluate_tasks(
    model: Embedder,
    images: ImageSet,
    drawn: Sequence[Tasks],
    rule: str | None = None,
    options: Mapping[str, Any] | None = None,
    progress: bool = False,
) -> list[Report]:
    """Evaluate several sets of tasks, embedding the images once.

    Options that are not given take the values the network was trained for, if its method has any,
    or else the defaults of the rule.
    """
    rule = default_rule(model, images) if rule is None else rule
    if isinstance(model, Encoder) and rule == model.method.rule:
        options = {**model.method.rule_options(), **(options or {})}
    resolved = RULES.options(rule, dict(options or {}))
    classify = RULES[rule](**resolved)
    for tasks in drawn:
        tasks.check(np.empty(0) if images.labels is None else images.labels)
    embeddings = embeddings_for(classify, model, images)
    results = []
    for tasks in drawn:
        predicted = classify_tasks(embeddings, tasks, classify, model.heads, progress)
        accuracy = 100 * _is_correct(predicted).mean(dim=(1, 2)).double().numpy()  # (T,)
        mean, ci95 = interval(accuracy)
        ways, shots = tasks.setting
        results.append(
            Report(
                data=images.name,
                split=images.split,
                rule=rule,
                options=resolved,
                transductive=classify.transductive,
                views_at_test=model.recipe.views.at_test if isinstance(model, Encoder) else 0,
                ways=ways,
                shots=shots,
                queries=predicted.shape[2],
                tasks=len(tasks),
                seed=tasks.seed,
                mean=mean,
                ci95=ci95,
                left_out=tasks.left_out,
                per_task=tuple(accuracy.tolist()),
            )
        )
    return results


def embeddings_for(rule: Rule, model: Embedder, images: ImageSet) -> Embeddings:
    """Embed all images as the rule needs them.

    Raises
    ------
    InputError
        If the rule reads or trains blocks of a network and the model has none.
    """
    if getattr(rule, "needs_previous", False):
        if not isinstance(model, Encoder):
            raise InputError("features=last+previous requires a run folder; use features=last")
        return model.embed(images.images, previous=True)
    if not getattr(rule, "needs_pixels", False):
        return model.embed(images.images)
    if not isinstance(model, Encoder):
        raise InputError(f"rule {type(rule).__name__!r} trains a network and needs a run folder")
    return model.pixels(images.images)


def classify_tasks(
    embeddings: Embeddings,
    tasks: Tasks,
    rule: Rule,
    heads: Heads | None = None,
    progress: bool = False,
) -> Tensor:
    """Predict the class of every query.

    Parameters
    ----------
    embeddings
        The whole image set, (n,).
    tasks
        Indices into it: T tasks of N ways with K shots and Q queries.
    rule, heads
        How to classify, and the heads of the network for rules that train them.
    progress
        Show progress and the running mean.

    Returns
    -------
    Tensor
        (T, N, Q) int64 in 0..N−1; the true class of row n is n.
    """
    ways, shots = tasks.setting
    numbers = (tasks.support[0].size + tasks.query[0].size) * embeddings.features.shape[1]
    at_once = max(1, _NUMBERS_AT_ONCE // numbers)
    at_once = min(at_once, getattr(rule, "tasks_at_once", at_once))
    labels = torch.arange(ways).repeat_interleave(shots)  # (NK,)
    predicted: list[Tensor] = []
    with Bar(f"{ways}-way {shots}-shot", progress) as bar:
        for begin in range(0, len(tasks), at_once):
            s = torch.from_numpy(tasks.support[begin : begin + at_once]).flatten(1)  # (t, NK)
            q = torch.from_numpy(tasks.query[begin : begin + at_once])  # (t, N, Q)
            support = SupportSet(embeddings[s], labels.expand(len(s), -1), ways, heads, first=begin)
            scores = rule(support, embeddings[q.flatten(1)])  # (t, NQ, N)
            predicted.append(scores.argmax(dim=2).view_as(q))
            if progress:
                correct = 100 * _is_correct(torch.cat(predicted)).mean().item()
                bar.update(min(1.0, (begin + at_once) / len(tasks)), f"mean {correct:.2f} %")
    return torch.cat(predicted)


def _is_correct(predicted: Tensor) -> Tensor:  # (T, N, Q) -> (T, N, Q)
    return (predicted == torch.arange(predicted.shape[1])[:, None]).float()
