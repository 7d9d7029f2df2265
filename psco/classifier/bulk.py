"""Image files in bulk: classifiers made of them, classified and embedded by them, as streams."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from psco.classifier import FewShotClassifier
from psco.classifier.embedding import choose_device, embedding
from psco.classifier.inputs import check_classes
from psco.classifier.pictures import BATCH, decoded, path_in
from psco.data.reading.folders import list_images
from psco.data.reading.listing import Listing
from psco.data.reading.undecodable import reason
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings, join_embeddings
from psco.files.atomic import atomic_path
from psco.training.checkpoint import read_recipe


class Row(NamedTuple):
    """What is found out about one picture.

    Parameters
    ----------
    path
        The file.
    label, probability
        The likeliest class; or ``"unknown"``, which has no probability.
    runner_up, runner_up_probability
        The second class; the likeliest one of a picture that is unknown.
    nearest_support
        The support most like it.
    error
        Why there is no result, else empty.
    """

    path: str
    label: Any = None
    probability: float | None = None
    runner_up: Any = None
    runner_up_probability: float | None = None
    nearest_support: str | None = None
    error: str = ""


class Embedded(NamedTuple):
    """Image files as points.

    Parameters
    ----------
    names
        The n files that could be decoded.
    points
        (n,) points.
    labels
        (n,) class names, or None where they are not known.
    errors
        The other files, and what is wrong with them.
    """

    names: list[str]
    points: Embeddings
    labels: np.ndarray | None
    errors: dict[str, str]


def fit_files(
    run: str | Path,
    supports: str | Path,
    *,
    rule: str = "prototype",
    rule_options: Mapping[str, Any] | None = None,
    adapt_steps: int = 0,
    reject_below: float | str | None = None,
    device: str = "auto",
    seed: int = 0,
) -> FewShotClassifier:
    """Make a classifier of image files.

    Parameters
    ----------
    run
        Run folder of the encoder.
    supports
        Folder or zip archive with a sub-folder per class, or CSV file with paths and labels.
    rule, rule_options, adapt_steps, reject_below, device, seed
        See `FewShotClassifier`.

    Raises
    ------
    InputError
        If there are fewer than two classes, or one of the pictures cannot be decoded.
    """
    listing = list_images(Path(supports))
    if listing.labels is None:
        raise InputError(
            f"{str(supports)!r} does not tell classes: give a folder with a sub-folder for each, "
            f"or a .csv file with the columns path and label"
        )
    labels = np.array(listing.classes)[listing.labels]
    check_classes(labels, repr(str(supports)))
    classifier = FewShotClassifier(
        run,
        rule=rule,
        adapt_steps=adapt_steps,
        reject_below=reject_below,
        device=device,
        random_state=seed,
        rule_options=dict(rule_options or {}),
    )
    pictures = list(decoded(listing, read_recipe(Path(run)).image))
    bad = [
        (n, p) for n, p in zip(listing.files, pictures, strict=True) if isinstance(p, InputError)
    ]
    if bad:
        name, error = bad[0]
        raise InputError(
            f"{len(bad)} of {len(listing)} supports cannot be decoded; the first is {name!r}: "
            f"{reason(error)}; repair or remove them"
        )
    images = [picture for picture in pictures if not isinstance(picture, InputError)]
    classifier.fit(np.stack(images), labels)
    classifier.support_names_ = list(listing.files)
    return classifier


def classify_files(
    classifier: FewShotClassifier, listing: Listing, *, device: str = "auto", progress: bool = False
) -> Iterator[Row]:
    """Classify image files, 256 in memory at a time.

    Under a transductive rule all pictures are one task: then their points, which are small, are
    all kept until the last picture has been decoded.

    Parameters
    ----------
    classifier
        Fitted with an encoder.
    listing
        The files, see `list_pictures`.
    device
        See `FewShotClassifier`.
    progress
        Show a progress bar on stderr.

    Yields
    ------
    Row
        One for each file, in order; those that cannot be decoded have an error.

    Raises
    ------
    InputError
        If the classifier was fitted on bare features.
    """
    encoder = encoder_of(classifier)
    batches = _embed_batches(encoder, listing, device, "classify", progress)
    if classifier.model.task.rule.transductive:
        batches = iter([_merged(list(batches))])
    for batch in batches:
        found = iter(()) if batch.points is None else _judge(classifier, batch.points)
        for path, error in batch.files:
            yield Row(path, error=error) if error else next(found)._replace(path=path)


def encoder_of(classifier: FewShotClassifier) -> Encoder:
    """Give the encoder of a classifier; InputError if it was fitted on bare features."""
    if classifier.network is None:
        raise InputError("this classifier was fitted on features, without an encoder for pictures")
    return classifier.network


def embed_files(
    encoder: Encoder, listing: Listing, *, device: str = "auto", progress: bool = False
) -> Embedded:
    """Embed image files, 256 in memory at a time.

    Raises
    ------
    InputError
        If not one of them can be decoded.
    """
    whole = _merged(list(_embed_batches(encoder, listing, device, "embed", progress)))
    errors = {path: error for path, error in whole.files if error}
    if whole.points is None:
        path, error = next(iter(errors.items()))
        raise InputError(
            f"none of {len(errors)} images can be decoded; the first, {path!r}: {error}"
        )
    good = np.array([not error for _, error in whole.files])
    labels = None
    if listing.labels is not None:
        labels = np.array(listing.classes)[listing.labels[good]]
    return Embedded([p for p, error in whole.files if not error], whole.points, labels, errors)


def write_features(path: Path, embedded: Embedded) -> None:
    """Write names, features, support and query representations, and labels if any, as .npz."""
    points = embedded.points
    arrays = {
        "names": np.array(embedded.names),
        "features": points.features.numpy(),
        "support": points.support.numpy(),
        "query": points.query.numpy(),
    }
    if embedded.labels is not None:
        arrays["labels"] = embedded.labels
    with atomic_path(path) as aside, aside.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def write_rows(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """Write rows to a CSV file as they pass; the file is there when the last one has passed."""
    # Names that are not Unicode are written with the bytes they have on disk.
    with (
        atomic_path(path) as aside,
        aside.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        for row in rows:
            writer.writerow(row)
            yield row


class _Batch(NamedTuple):
    files: list[tuple[str, str]]  # path, and the error if there is one
    points: Embeddings | None  # of those without


def _embed_batches(
    encoder: Encoder, listing: Listing, device: str, title: str, progress: bool
) -> Iterator[_Batch]:
    image = encoder.recipe.image
    results = zip(
        listing.files, decoded(listing, image, title=title, progress=progress), strict=True
    )
    with embedding(encoder, choose_device(device)) as embed:
        while some := list(islice(results, BATCH)):
            pixels = [result for _, result in some if not isinstance(result, InputError)]
            files = [
                (path_in(listing, name), reason(result) if isinstance(result, InputError) else "")
                for name, result in some
            ]
            yield _Batch(files, embed(np.stack(pixels)) if pixels else None)


def _merged(batches: list[_Batch]) -> _Batch:
    points = [batch.points for batch in batches if batch.points is not None]
    files = [file for batch in batches for file in batch.files]
    return _Batch(files, join_embeddings(points) if points else None)


def _judge(classifier: FewShotClassifier, points: Embeddings) -> Iterator[Row]:
    judged = classifier.model.judge(points)
    nearest = classifier.model.nearest(points)
    classes = classifier.classes_.tolist()
    # Of equals the class that comes first, as in the prediction.
    order = np.argsort(-judged.probabilities, axis=1, kind="stable")[:, :2].tolist()
    for i, places in enumerate(order):
        ranking: list[tuple[Any, float | None]] = [
            (classes[place], float(judged.probabilities[i, place])) for place in places
        ]
        if judged.rejected[i]:
            ranking = [(judged.labels[i], None), *ranking]
        (label, chance), (second, second_chance), *_ = [*ranking, (None, None)]
        name = classifier.support_names_[nearest[i]]
        yield Row("", label, chance, second, second_chance, name)
