"""Supports that are left out: how a classifier does on images that it was not fitted on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from psco.classifier.model import Model, Supports, build_model
from psco.evaluation.rules import RULES, Heads, SupportSet

_MOST_GROUPS, _PARTS = 100, 20  # left out one by one, at most, and parts of a larger number
_LEFT_OUT = 200  # supports that are left out in turn, at most
_ADAPTED_ROWS = 100_000  # rows in all steps of all tasks whose heads are trained to leave one out
_GATHERED_NUMBERS = 1 << 24  # features of the tasks scored at once: 64 to 128 MiB


class LeftOut(NamedTuple):
    """How many of the supports that could be left out were classified correctly."""

    correct: int
    total: int

    @property
    def accuracy(self) -> float:
        """The fraction in [0, 1]; 0 if none could be left out."""
        return self.correct / max(1, self.total)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the accuracy; (0, 1) if none could be left out."""
        if not self.total:
            return 0.0, 1.0
        z, n, p = 1.96, self.total, self.accuracy
        centre, half = p + z**2 / (2 * n), z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        return (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)


def left_out_accuracy(
    supports: Supports,
    rule: str,
    heads: Heads | None,
    groups: Sequence[object] | None = None,
    options: Mapping[str, Any] | None = None,
) -> LeftOut:
    """Classify each support by those of other groups.

    Parameters
    ----------
    supports, rule, heads
        The labelled embeddings, a rule by name, and the heads of the encoder if there is one.
    groups
        (S,) frames of one video, pictures of one patient and the like have equal values, and are
        left out together. By default every support is a group. More than 100 groups are left out
        in 20 parts.
    options
        Of the rule.
    """
    model = build_model(supports, rule, RULES.options(rule, dict(options or {})), heads)
    numbers = np.unique(
        np.arange(len(supports.labels)) if groups is None else np.asarray(groups),
        return_inverse=True,
    )[1]
    if (count := numbers.max() + 1) > _MOST_GROUPS:
        numbers = (RandomState(0).permutation(count) % _PARTS)[numbers]
    correct = total = 0
    for group in np.unique(numbers):
        out = torch.from_numpy(np.flatnonzero(numbers == group))
        rest = torch.from_numpy(np.flatnonzero(numbers != group))
        present = torch.unique(model.targets[rest])
        out = out[torch.isin(model.targets[out], present)]  # of classes that others still have
        if not len(out) or len(present) < 2:
            continue
        labels = torch.searchsorted(present, model.targets[rest])
        others = SupportSet(model.prepared[rest[None]], labels[None], len(present), heads)
        scores = model.rule(others, model.prepared[out[None]]).detach()[0]  # (o, N)
        correct += int((present[scores.argmax(dim=1)] == model.targets[out]).sum())
        total += len(out)
    return LeftOut(correct, total)


def choose_left_out(targets: Tensor, random: RandomState, limit: int = _LEFT_OUT) -> np.ndarray:
    """Choose supports, at most ``limit``, of classes (S,) with at least two supports; sorted."""
    counts = torch.bincount(targets)
    several = (counts[targets] > 1).nonzero()[:, 0].numpy()
    if len(several) > limit:
        several = np.sort(random.choice(several, limit, replace=False))
    return several


class HeldOut(NamedTuple):
    """How supports score that were left out, L of them; see `leave_one_out`."""

    scores: np.ndarray  # (L, N)
    similarity: np.ndarray  # (L,)
    truth: np.ndarray  # (L,)


NOTHING_HELD_OUT = HeldOut(np.empty((0, 0)), np.empty(0), np.empty(0, dtype=np.int64))


def leave_one_out(
    model: Model, name: str, options: Mapping[str, Any], random: RandomState
) -> HeldOut:
    """Score supports by the others, for classes with at least two supports."""
    supports, centre_rule = model.prepared, model.centre_rule
    rule, heads, limit = model.rule, model.heads, _LEFT_OUT
    if model.adapted is not None:
        # Heads that were trained on a support score it too well: train them anew without it.
        supports = model.supports.embeddings
        rule = centre_rule = RULES[name](**options)
        rows = len(supports) * max(1, options["steps"])
        limit = max(2, min(limit, _ADAPTED_ROWS // rows)) if len(supports) > 2 else 0
    chosen = choose_left_out(model.targets, random, limit)
    everyone = torch.arange(len(supports))
    at_once = max(1, _GATHERED_NUMBERS // max(1, supports.features.numel()))
    parts = [NOTHING_HELD_OUT._replace(scores=np.empty((0, len(model.classes))))]
    for begin in range(0, len(chosen), at_once):
        out = torch.from_numpy(chosen[begin : begin + at_once])  # (l,)
        rest = torch.stack([everyone[everyone != index] for index in out])  # (l, S - 1)
        others = SupportSet(supports[rest], model.targets[rest], len(model.classes), heads, begin)
        query = supports[out[:, None]]  # (l, 1)
        scores = rule(others, query).detach()[:, 0].double()  # (l, N)
        centres = scores
        if centre_rule != rule:
            centres = centre_rule(others, query).detach()[:, 0].double()
        similarity = centres.max(dim=1).values
        truth = model.targets[out]
        parts.append(HeldOut(scores.numpy(), similarity.numpy(), truth.numpy()))
    return HeldOut(*(np.concatenate(column) for column in zip(*parts, strict=True)))
