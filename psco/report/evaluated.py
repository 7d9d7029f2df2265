"""The page of an evaluation: accuracy, tasks, confusion matrix, reliability and a map."""

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
from psco.evaluation.evaluate import classify_tasks, embeddings_for
from psco.evaluation.result import Report
from psco.evaluation.rules import RULES, Embeddings, Rule, SupportSet
from psco.report.confusion import confusion_counts, confusion_table
from psco.report.gallery import task_rows
from psco.report.maps import embedding_map
from psco.report.page import Part, number_table, page
from psco.report.plots import shots_plot
from psco.report.trust import trust_part
from psco.training.collapse import run_warning

_QUERIES_SHOWN = 12
_TASKS_FOR_TRUST = 100
_TASKS_FOR_CONFUSION = 500
_CLASSES_MAPPED = 12
_IMAGES_MAPPED = 15  # per class


def evaluation_page(
    model: Embedder, images: ImageSet, drawn: Sequence[Tasks], results: Sequence[Report], name: str
) -> str:
    """Return the page of an evaluation.

    Parameters
    ----------
    model, images
        What was evaluated, and on what.
    drawn, results
        The tasks and the result of each setting.
    name
        Name of the model.
    """
    first = results[0]
    rule = RULES[first.rule](**first.options)
    embeddings = embeddings_for(rule, model, images)
    parts = [
        _accuracy(results),
        Part(
            "Tasks",
            "The first task of each setting, not selected. Left, in blue: the supports of each "
            "class. Right: the queries, green if the prediction is right and red if it is wrong, "
            "with the predicted class in the corner and the probability below. Dashed (orange if "
            "right): a classifier with an automatic threshold would answer unknown.",
            "".join(_task(embeddings, images, tasks, model, first) for tasks in drawn),
        ),
        _confusion(embeddings, images, drawn[0], rule, model),
        Part(
            "Embeddings",
            f"Up to {_CLASSES_MAPPED} classes, placed by the first two principal components of "
            "their embeddings. The frame shows the class.",
            _map(embeddings, images),
        ),
    ]
    if isinstance(model, Encoder) and first.rule == "prototype":
        parts.insert(3, _trust(model, images, results, embeddings))
    lead = f"{name} on {images.name} ({images.split}): {len(images.classes)} classes."
    folder = model.folder if isinstance(model, Encoder) else None
    warning = None if folder is None else run_warning(folder)
    return page("Few-shot evaluation", lead, parts, f"Settings {first.hash}.", warning)


def _accuracy(results: Sequence[Report]) -> Part:
    first = results[0]
    rows = [
        [f"{r.ways}-way {r.shots}-shot", f"{r.mean:.2f} ± {r.ci95:.2f}", str(r.tasks)]
        for r in results
    ]
    left_out = max(result.left_out for result in results)
    note = f" {left_out} classes have too few images and are left out." if left_out else ""
    return Part(
        "Accuracy",
        f"Percent with 95 % intervals. Rule {first.how}, {first.queries} queries per class, seed "
        f"{first.seed}.{note}",
        shots_plot([result.as_dict() for result in results])
        + number_table(["setting", "accuracy", "tasks"], rows),
    )


def _task(
    embeddings: Embeddings, images: ImageSet, tasks: Tasks, model: Embedder, result: Report
) -> str:
    ways, shots = tasks.setting
    support, query = tasks.support[0], tasks.query[0]  # (N, K), (N, Q)
    known, asked = (embeddings[torch.from_numpy(part).reshape(-1)] for part in (support, query))
    labels = np.arange(ways).repeat(shots)  # (NK,)
    chances, rejected = _predict(known, labels, asked, model, result)  # (NQ, N), (NQ,)
    chances = chances.reshape(*query.shape, ways)[:, :_QUERIES_SHOWN]
    body = task_rows(
        images.images,
        support,
        query[:, :_QUERIES_SHOWN],
        chances.argmax(axis=2),
        chances.max(axis=2),
        rejected.reshape(query.shape)[:, :_QUERIES_SHOWN],
    )
    return f'<h3>{ways}-way {shots}-shot</h3><table class="task">{body}</table>'


def _predict(
    known: Embeddings, labels: np.ndarray, asked: Embeddings, model: Embedder, result: Report
) -> tuple[np.ndarray, np.ndarray]:
    """Return a classifier's probabilities (Q, N), and whether it rejects a query, (Q,)."""
    rule = RULES[result.rule](**result.options)
    if not getattr(rule, "needs_pixels", False):
        prediction = _fit(Supports(known, labels), model, result).predict(asked)
        return prediction.probabilities, prediction.rejected
    # Classifiers do not have the rules that train whole networks, so only scores are available.
    support, query = (some[torch.arange(len(some))[None]] for some in (known, asked))
    classes = torch.from_numpy(labels)[None]
    task = SupportSet(support, classes, int(labels.max()) + 1, model.heads)
    own, scores = (rule(task, some)[0].double().numpy() for some in (support, query))
    chances = probabilities(scores, default_temperature(own, labels))
    return chances, np.zeros(len(asked), dtype=bool)


def _fit(supports: Supports, model: Embedder, result: Report) -> Model:
    calibration = open_encoder(model)[1] if isinstance(model, Encoder) else None

    def fit(reject_below: str | None) -> Model:
        return fit_model(
            supports,
            heads=model.heads,
            calibration=calibration,
            random=RandomState(result.seed),
            rule=result.rule,
            rule_options=result.options,
            reject_below=reject_below,
        )

    try:
        return fit(AUTO)
    except InputError:  # one shot per class, and a run without calibration
        return fit(None)


def _confusion(
    embeddings: Embeddings, images: ImageSet, tasks: Tasks, rule: Rule, model: Embedder
) -> Part:
    assert images.labels is not None
    # Slow rules classify one batch of tasks.
    tasks = tasks.first(getattr(rule, "tasks_at_once", _TASKS_FOR_CONFUSION))
    predicted = classify_tasks(embeddings, tasks, rule, model.heads).numpy()
    counts = confusion_counts(predicted, tasks, images.labels, len(images.classes))
    ways, shots = tasks.setting
    return Part(
        "Confusion",
        f"Predictions in percent of the queries of each class (row), over {len(tasks)} tasks, "
        f"{ways}-way {shots}-shot. Two classes can be confused only in tasks that have both. Of "
        "many classes the least accurate are shown.",
        confusion_table(counts, images.classes),
    )


def _trust(
    model: Encoder, images: ImageSet, results: Sequence[Report], embeddings: Embeddings
) -> Part:
    try:
        qualities = [
            open_set_quality(
                model, images, r.ways, r.shots, r.queries, _TASKS_FOR_TRUST, r.seed, embeddings
            )
            for r in results
        ]
    except InputError as error:  # too few classes for foreign ones, or a run without calibration
        return Part("Confidence and unknown classes", f"Not measured: {error}.", "")
    return trust_part(qualities)


def _map(embeddings: Embeddings, images: ImageSet) -> str:
    assert images.labels is not None
    classes = np.unique(images.labels)[:_CLASSES_MAPPED]
    chosen = np.concatenate(
        [np.flatnonzero(images.labels == label)[:_IMAGES_MAPPED] for label in classes]
    )
    # Rules that train whole networks have pixels, which are features without heads.
    has_heads = embeddings.support.shape[-1] > 0
    vectors = (embeddings.support if has_heads else embeddings.features)[torch.from_numpy(chosen)]
    return embedding_map(images.images[chosen], vectors, images.labels[chosen], images.classes)
