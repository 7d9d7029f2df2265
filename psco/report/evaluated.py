"""The page of an evaluation: numbers, accuracy over shots, tasks, and a map of unseen classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.random import RandomState

from psco.classifier import open_set_quality
from psco.classifier.calibration import open_encoder
from psco.classifier.confidence import default_temperature, probabilities
from psco.classifier.fitting import AUTO, fit_model
from psco.classifier.model import Model, Supports
from psco.data import ImageSet
from psco.data.tasks import Tasks
from psco.errors import InputError
from psco.evaluation.embed import Embedder, Encoder
from psco.evaluation.evaluate import embeddings_for
from psco.evaluation.result import Report
from psco.evaluation.rules import RULES, Embeddings, SupportSet
from psco.report.gallery import task_rows
from psco.report.maps import embedding_map
from psco.report.page import Part, number_table, page
from psco.report.plots import shots_plot
from psco.report.trust import trust_part
from psco.training.collapse import run_warning

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
    points = embeddings_for(RULES[first.rule](**first.options), model, images)
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
            "the class it was taken for in the corner and the probability of the prediction below. "
            "Dashed, and orange if right, is what a classifier with an automatic threshold would "
            "call unknown.",
            "".join(_task(points, images, tasks, model, first) for tasks in drawn),
        ),
        Part(
            "Map",
            f"Up to {_CLASSES_MAPPED} of the classes, laid out by the two main directions of their "
            "support representations. Frames tell the classes apart.",
            _map(points, images),
        ),
    ]
    if isinstance(model, Encoder) and first.rule == "prototype":
        parts.insert(2, _trust(model, images, reports, points))
    lead = f"{name} on {images.name} ({images.split}): {len(images.classes)} classes."
    folder = model.folder if isinstance(model, Encoder) else None
    warning = None if folder is None else run_warning(folder)
    return page("Few-shot evaluation", lead, parts, f"Settings {first.hash}.", warning)


def _task(
    points: Embeddings, images: ImageSet, tasks: Tasks, model: Embedder, about: Report
) -> str:
    ways, shots = tasks.setting
    support, query = tasks.support[0], tasks.query[0]  # (N, K), (N, Q)
    known, asked = (points[torch.from_numpy(part).reshape(-1)] for part in (support, query))
    labels = np.arange(ways).repeat(shots)  # (NK,)
    chances, rejected = _judge(known, labels, asked, model, about)  # (NQ, N), (NQ,)
    chances = chances.reshape(*query.shape, ways)[:, :_QUERIES_SHOWN]
    body = task_rows(
        images.images,
        support,
        query[:, :_QUERIES_SHOWN],
        chances.argmax(axis=2),
        chances.max(axis=2),
        rejected.reshape(query.shape)[:, :_QUERIES_SHOWN],
    )
    return f'<p class="note">{ways}-way {shots}-shot</p><table class="task">{body}</table>'


def _judge(
    known: Embeddings, labels: np.ndarray, asked: Embeddings, model: Embedder, about: Report
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a classifier says: probabilities (Q, N), and whether it rejects, (Q,)."""
    rule = RULES[about.rule](**about.options)
    if not getattr(rule, "needs_pixels", False):
        prediction = _classifier(Supports(known, labels), model, about).predict(asked)
        return prediction.probabilities, prediction.rejected
    # Rules that train whole networks are not for classifiers: their scores are all there is.
    classes = torch.from_numpy(labels)[None]
    support, query = (points[torch.arange(len(points))[None]] for points in (known, asked))
    own, scores = (
        rule(SupportSet(support, classes, int(labels.max()) + 1, model.heads), some)[0]
        .double()
        .numpy()
        for some in (support, query)
    )
    chances = probabilities(scores, default_temperature(own, labels))
    return chances, np.zeros(len(asked), dtype=bool)


def _classifier(supports: Supports, model: Embedder, about: Report) -> Model:
    calibration = open_encoder(model)[1] if isinstance(model, Encoder) else None

    def fit(reject_below: str | None) -> Model:
        return fit_model(
            supports,
            heads=model.heads,
            calibration=calibration,
            random=RandomState(about.seed),
            rule=about.rule,
            rule_options=about.options,
            reject_below=reject_below,
        )

    try:
        return fit(AUTO)
    except InputError:  # one shot per class, and a run without calibration
        return fit(None)


def _trust(model: Encoder, images: ImageSet, reports: Sequence[Report], points: Embeddings) -> Part:
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


def _map(points: Embeddings, images: ImageSet) -> str:
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
