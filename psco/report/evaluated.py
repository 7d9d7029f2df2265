"""The page of an evaluation: numbers, accuracy over shots, tasks, and a map of unseen classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from psco.classifier import open_set_quality
from psco.collapse import run_warning
from psco.confidence import default_temperature, probabilities
from psco.data import ImageSet
from psco.data.tasks import Tasks
from psco.encoder import Embedder, Encoder
from psco.errors import InputError
from psco.evaluation import points_for
from psco.report.gallery import task_rows
from psco.report.maps import embedding_map
from psco.report.page import Part, number_table, page
from psco.report.plots import shots_plot
from psco.report.trust import trust_part
from psco.result import Report
from psco.rules import RULES, Points

_QUERIES_SHOWN = 12
_TASKS_FOR_TRUST = 100
_CLASSES_MAPPED, _IMAGES_MAPPED = 12, 15  # and images of each class


def evaluation_page(
    model: Embedder, images: ImageSet, drawn: Sequence[Tasks], reports: Sequence[Report], name: str
) -> str:
    """Write the page.

    Parameters
    ----------
    model, images
        What was evaluated, and on what.
    drawn, reports
        The tasks of every setting and what came out.
    name
        What to call the model.
    """
    first = reports[0]
    points = points_for(RULES[first.rule](**first.options), model, images)
    kind = "transductive" if first.transductive else "inductive"
    rows = [
        [f"{r.ways}-way {r.shots}-shot", f"{r.mean:.2f} ± {r.ci95:.2f}", str(r.tasks)]
        for r in reports
    ]
    left_out = max(report.left_out for report in reports)
    parts = [
        Part(
            "Accuracy",
            f"Percent with 95 % intervals; rule {first.rule} ({kind}), {first.queries} queries of "
            f"each class, seed {first.seed}; {left_out} classes have too few images and are left "
            "out.",
            shots_plot([report.as_dict() for report in reports])
            + number_table(["setting", "accuracy", "tasks"], rows),
        ),
        Part(
            "Tasks",
            "The first task of each setting, not chosen. Left, in blue, the supports of each "
            "class; then queries, green where the prediction is right, red where it is wrong, with "
            "the class it was taken for in the corner and the probability of the prediction below.",
            "".join(_task(points, images, tasks, model, first) for tasks in drawn),
        ),
        Part(
            "Map",
            f"Up to {_CLASSES_MAPPED} of the classes, laid out by the two main directions of their "
            "support representations. Frames tell the classes apart; colours repeat.",
            _map(points, images),
        ),
    ]
    if isinstance(model, Encoder) and first.rule == "prototype":
        parts.insert(2, _trust(model, images, reports, points))
    lead = f"{name} on {images.name} ({images.split}): {len(images.classes)} classes."
    folder = model.folder if isinstance(model, Encoder) else None
    warning = None if folder is None else run_warning(folder)
    return page("Few-shot evaluation", lead, parts, f"Settings {first.hash}.", warning)


def _task(points: Points, images: ImageSet, tasks: Tasks, model: Embedder, about: Report) -> str:
    rule = RULES[about.rule](**about.options)
    ways, shots = tasks.setting
    labels = torch.arange(ways).repeat_interleave(shots)  # (NK,)
    support, query = tasks.support[0], tasks.query[0]  # (N, K), (N, Q)
    known = points[torch.from_numpy(support).reshape(1, -1)]
    asked = points[torch.from_numpy(query).reshape(1, -1)]
    own, scores = (
        rule(known, labels[None], some, ways, model.heads)[0].double().numpy()
        for some in (known, asked)
    )
    chances = probabilities(scores, default_temperature(own, labels.numpy()))  # (NQ, N)
    chances = chances.reshape(*query.shape, ways)[:, :_QUERIES_SHOWN]
    body = task_rows(
        images.images,
        support,
        query[:, :_QUERIES_SHOWN],
        chances.argmax(axis=2),
        chances.max(axis=2),
    )
    return f'<p class="note">{ways}-way {shots}-shot</p><table class="task">{body}</table>'


def _trust(model: Encoder, images: ImageSet, reports: Sequence[Report], points: Points) -> Part:
    try:
        qualities = [
            open_set_quality(
                model, images, r.ways, r.shots, r.queries, _TASKS_FOR_TRUST, r.seed, points
            )
            for r in reports
        ]
    except InputError as error:  # too few classes for foreign ones, or a run not calibrated
        return Part("Confidence and unknown classes", f"Not measured: {error}.", "")
    return trust_part(qualities)


def _map(points: Points, images: ImageSet) -> str:
    assert images.labels is not None
    classes = np.unique(images.labels)[:_CLASSES_MAPPED]
    chosen = np.concatenate(
        [np.flatnonzero(images.labels == name)[:_IMAGES_MAPPED] for name in classes]
    )
    # Rules that train whole networks see pixels, and these are no representations of supports.
    vectors = (points.support if points.support.shape[-1] else points.features)[
        torch.from_numpy(chosen)
    ]
    return embedding_map(images.images[chosen], vectors, images.labels[chosen])
