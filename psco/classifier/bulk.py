"""Image files in bulk: fit a classifier on them, classify them and embed them, as streams."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from psco.classifier.estimator import FewShotClassifier
from psco.classifier.features import check_classes
from psco.classifier.images import BATCH, choose_device, decode_files, embedder_on
from psco.classifier.model import Prediction
from psco.classifier.results import EmbeddedFiles, Row
from psco.data.reading.folders import ChosenFiles, list_images, list_paths
from psco.data.reading.listing import Listing, image_files
from psco.data.reading.source import FolderSource
from psco.data.reading.undecodable import reason
from psco.errors import InputError, counted, quoted
from psco.evaluation.embed import Encoder, encoder_recipe
from psco.evaluation.rules import Embeddings, join_embeddings
from psco.recipes.recipe import ImageSettings


def list_image_files(places: Sequence[str | os.PathLike[str]]) -> Listing:
    """List the images in files and folders, the latter at any depth.

    A single folder, zip archive or CSV file may also give the classes; see `list_images`.

    Raises
    ------
    InputError
        If there are none, or one of the places does not exist.
    """
    paths = [Path(place) for place in places]
    if len(paths) == 1 and (paths[0].is_dir() or paths[0].suffix.lower() in (".zip", ".csv")):
        return list_images(paths[0])
    files: list[str] = []
    for path in paths:
        folder = image_files(FolderSource(path)) if path.is_dir() else None
        files += [str(path)] if folder is None else [str(path / name) for name in folder]
    return list_paths(list(dict.fromkeys(files)))


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
    """Fit a classifier on image files.

    Parameters
    ----------
    run
        Run folder of the encoder, or the name of a built-in encoder.
    supports
        Folder or zip archive with a sub-folder per class, or CSV file with paths and labels.
    rule, rule_options, adapt_steps, reject_below, device, seed
        See `FewShotClassifier`.

    Raises
    ------
    InputError
        If there are fewer than two classes, or an image cannot be decoded.
    """
    listing = list_images(Path(supports))
    if listing.labels is None:
        raise InputError(
            f"{quoted(supports)} has no classes; pass a folder with a sub-folder per class, or a "
            f".csv file with the columns path and label"
        )
    labels = np.array(listing.classes)[listing.labels]
    check_classes(labels, quoted(supports))
    classifier = FewShotClassifier(
        run,
        rule=rule,
        adapt_steps=adapt_steps,
        reject_below=reject_below,
        device=device,
        random_state=seed,
        rule_options=dict(rule_options or {}),
    )
    results = list(decode_files(listing, encoder_recipe(run).image))
    images, errors = _separate(listing.files, results)
    if errors:
        name, error = next(iter(errors.items()))
        raise InputError(
            f"{len(errors)} of {counted(len(listing), 'support')} cannot be decoded; the first is "
            f"{quoted(name)}: {error}; repair or remove them"
        )
    classifier.fit(np.stack(images), labels)
    classifier.support_names_ = list(listing.files)
    return classifier


def classify_files(
    classifier: FewShotClassifier, listing: Listing, *, device: str = "auto", progress: bool = False
) -> Iterator[Row]:
    """Classify image files, with 256 in memory at a time.

    Under a transductive rule all images are one task. Then the embeddings, which are small, are
    kept until the last image has been decoded.

    Parameters
    ----------
    classifier
        Fitted with an encoder.
    listing
        The files, see `list_image_files`.
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
        If the classifier was fitted on features.
    """
    encoder = encoder_of(classifier)
    batches = _embed_batches(encoder, listing, device, "classify", progress)
    if classifier.model.rule.transductive:
        batches = iter([_merge(list(batches))])
    for batch in batches:
        rows = iter(()) if batch.embeddings is None else _rows(classifier, batch.embeddings)
        for path, error in batch.files:
            yield Row(path, error=error) if error else next(rows)._replace(path=path)


def encoder_of(classifier: FewShotClassifier) -> Encoder:
    """Return the encoder of a classifier; InputError if it was fitted on features."""
    if classifier.network is None:
        raise InputError("this classifier was fitted on features; fit one with an encoder")
    return classifier.network


def embed_files(
    encoder: Encoder, listing: Listing, *, device: str = "auto", progress: bool = False
) -> EmbeddedFiles:
    """Embed image files, with 256 in memory at a time.

    Raises
    ------
    InputError
        If none of them can be decoded.
    """
    whole = _merge(list(_embed_batches(encoder, listing, device, "embed", progress)))
    errors = {path: error for path, error in whole.files if error}
    if whole.embeddings is None:
        path, error = next(iter(errors.items()))
        raise InputError(
            f"none of {counted(len(errors), 'image')} can be decoded; the first is "
            f"{quoted(path)}: {error}"
        )
    names = [path for path, error in whole.files if not error]
    labels = None
    if listing.labels is not None:
        is_decoded = np.array([not error for _, error in whole.files])
        labels = np.array(listing.classes)[listing.labels[is_decoded]]
    return EmbeddedFiles(names, whole.embeddings, labels, errors)


class _Batch(NamedTuple):
    files: list[tuple[str, str]]  # the path, and the error if there is one
    embeddings: Embeddings | None  # of the files without an error


def _embed_batches(
    encoder: Encoder, listing: Listing, device: str, title: str, progress: bool
) -> Iterator[_Batch]:
    with embedder_on(choose_device(device), encoder) as embed:
        for files, images in decoded_batches(listing, encoder.recipe.image, title, progress):
            yield _Batch(files, None if images is None else embed(images))


def decoded_batches(
    listing: Listing, settings: ImageSettings, title: str, progress: bool
) -> Iterator[tuple[list[tuple[str, str]], np.ndarray | None]]:
    """Decode the files of a listing in batches of 256.

    Yields
    ------
    list, np.ndarray or None
        The path of each file, and the error if there is one; and the decoded images
        (n, size, size, channels) uint8 of the files without an error, if there are any.
    """
    results = decode_files(listing, settings, title=title, progress=progress)
    names = iter(listing.files)
    while batch := list(islice(results, BATCH)):
        batch_names = list(islice(names, len(batch)))
        images, errors = _separate(batch_names, batch)
        files = [(_full_path(listing, name), errors.get(name, "")) for name in batch_names]
        yield files, np.stack(images) if images else None


def _separate(
    names: Sequence[str], results: Sequence[np.ndarray | InputError]
) -> tuple[list[np.ndarray], dict[str, str]]:
    """Return the decoded images, and the reasons why other files cannot be decoded."""
    images = [result for result in results if not isinstance(result, InputError)]
    pairs = zip(names, results, strict=True)
    return images, {name: reason(error) for name, error in pairs if isinstance(error, InputError)}


def _full_path(listing: Listing, name: str) -> str:
    return name if isinstance(listing.source, ChosenFiles) else str(listing.source.path / name)


def _merge(batches: list[_Batch]) -> _Batch:
    files = [file for batch in batches for file in batch.files]
    embeddings = [batch.embeddings for batch in batches if batch.embeddings is not None]
    return _Batch(files, join_embeddings(embeddings) if embeddings else None)


def _rows(classifier: FewShotClassifier, embeddings: Embeddings) -> Iterator[Row]:
    nearest = classifier.model.nearest_support(embeddings)
    names = [classifier.support_names_[place] for place in nearest]
    yield from result_rows(
        classifier.model.predict(embeddings), classifier.classes_.tolist(), names
    )


def result_rows(
    prediction: Prediction, classes: Sequence[Any], nearest: Sequence[str | None]
) -> Iterator[Row]:
    """Yield a row, without its path, for each of n images.

    Parameters
    ----------
    prediction
        Of n images.
    classes
        The N labels, in the order of the probabilities.
    nearest
        (n,) names of the nearest supports, or None.
    """
    # Stable, so that of equal classes the first one wins, as in the prediction.
    order = np.argsort(-prediction.probabilities, axis=1, kind="stable")[:, :2].tolist()
    for i, places in enumerate(order):
        ranking: list[tuple[Any, float | None]] = [
            (classes[place], float(prediction.probabilities[i, place])) for place in places
        ]
        if prediction.rejected[i]:
            ranking = [(prediction.labels[i], None), *ranking]
        (label, chance), (second, second_chance), *_ = [*ranking, (None, None)]
        yield Row("", label, chance, second, second_chance, nearest[i])
