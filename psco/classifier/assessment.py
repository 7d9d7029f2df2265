"""How good a classifier is, from its own supports, and whether the encoder is worth having."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from psco.classifier.bulk import encoder_of
from psco.classifier.estimator import FewShotClassifier
from psco.classifier.images import decode_files, embed_images
from psco.classifier.left_out import LeftOut, left_out_accuracy
from psco.classifier.model import Supports
from psco.classifier.rejection import RejectionRates, rejection_rates
from psco.data.duplicates import count_copies
from psco.data.reading.folders import csv_column, list_images
from psco.data.reading.listing import Listing
from psco.errors import InputError, counted, quoted
from psco.evaluation.embed import Encoder, load
from psco.evaluation.rules import Embeddings
from psco.evaluation.rules.prototype import resolve_adaptation

PIXELS, UNTRAINED, IMAGENET = "pixels", "untrained network", "imagenet"


class Assessment(NamedTuple):
    """Accuracy on supports that are left out, of a classifier and of baselines.

    Parameters
    ----------
    encoder
        With the encoder and the rule of the classifier, before any adaptation of its heads.
    baselines
        By name: logistic regression on pixels, and class means or the rule of the classifier on
        the features of the same network without training, and of the built-in ImageNet encoder
        where it is installed.
    groups
        Number of groups that were left out one by one; None if every support is its own group.
    copies
        Number of supports with a near-duplicate in another group, which makes them easy.
    rejection
        What an automatic threshold rejects; None without one.
    """

    encoder: LeftOut
    baselines: Mapping[str, LeftOut]
    groups: int | None
    copies: int = 0
    rejection: RejectionRates | None = None

    @property
    def warnings(self) -> list[str]:
        """What to warn about: what is unknown, flattering or not worth having."""
        return [
            warning
            for warning in (
                self._worth,
                self._flattered,
                None if self.rejection is None else self.rejection.warning,
            )
            if warning is not None
        ]

    @property
    def _worth(self) -> str | None:
        if not self.encoder.total:
            return "no support can be left out, so the accuracy is unknown; add shots or groups"
        name = max(self.baselines, key=lambda name: self.baselines[name].correct)
        if self.baselines[name].correct < self.encoder.correct:
            return None
        return (
            f"the encoder is no better than {name} on these supports; train it longer, or use "
            f"another encoder"
        )

    @property
    def _flattered(self) -> str | None:
        if not self.copies:
            return None
        return (
            f"near-duplicates of {counted(self.copies, 'support')} are among the others, so the "
            f"left-out accuracies are too high; remove copies, or name what belongs together with "
            f"--groups"
        )

    def lines(self) -> list[str]:
        """Return one line per accuracy."""
        how = "" if self.groups is None else f", by {counted(self.groups, 'group')}"
        rows = {f"left-out accuracy{how}": self.encoder, **self.baselines}
        lines = [f"{name}: {_percent(found)}" for name, found in rows.items() if found.total]
        return lines + ([] if self.rejection is None else self.rejection.lines())

    def as_dict(self) -> dict[str, Any]:
        """Return the accuracies in [0, 1] with their 95 % intervals, for JSON."""
        rows = {"encoder": self.encoder, **self.baselines}
        return {
            name: {"accuracy": found.accuracy, "interval": found.interval, "images": found.total}
            for name, found in rows.items()
        }


def assess_files(
    classifier: FewShotClassifier, supports: str | Path, *, groups: str | None = None, seed: int = 0
) -> Assessment:
    """Classify the supports of a classifier by one another, and compare with baselines.

    Parameters
    ----------
    classifier
        Fitted by `fit_files` on these supports.
    supports
        The folder, archive or CSV file.
    groups
        A column of the CSV file, or a regular expression: what it finds in a file name, or its
        first group in parentheses, is the name of the group. Supports of one group, such as the
        frames of a video, are left out together. By default each support is left out alone.
    seed
        Of the untrained network.

    Raises
    ------
    InputError
        If the regular expression is not valid or does not match a file name.
    """
    encoder, model = encoder_of(classifier), classifier.model
    listing = list_images(Path(supports))
    names = None if groups is None else group_names(listing, Path(supports), groups)
    decoded = decode_files(listing, encoder.recipe.image)
    pixels = np.stack([image for image in decoded if isinstance(image, np.ndarray)])
    labels, rule = model.supports.labels, classifier.rule_
    # Untrained heads are two different random maps, so only the features can be compared.
    plain_rule = "class-mean" if rule in ("prototype", "adapt") else rule
    untrained = Encoder.untrained(encoder.recipe, seed)
    embedded = embed_images(untrained, pixels, "cpu")[0]
    flat = torch.from_numpy(pixels.reshape(len(pixels), -1).astype(np.float32) / 255)
    baselines = {
        **_frozen(encoder, listing, labels, plain_rule, names),
        PIXELS: left_out_accuracy(Supports(_features(flat), labels), "logistic", None, names),
        UNTRAINED: left_out_accuracy(Supports(embedded, labels), plain_rule, None, names),
    }
    options = None if rule == "adapt" else classifier.rule_options
    own_rule = "prototype" if rule == "adapt" else rule
    own = left_out_accuracy(model.supports, own_rule, model.heads, names, options)
    _, given = resolve_adaptation(rule, classifier.rule_options, classifier.adapt_steps)
    return Assessment(
        own,
        baselines,
        None if names is None else len(set(names)),
        count_copies(pixels, names),
        rejection_rates(model, given, seed),
    )


def group_names(listing: Listing, path: Path, groups: str) -> list[str]:
    """Return the group of each file; see `assess_files`."""
    if path.suffix.lower() == ".csv" and (column := csv_column(path, groups)) is not None:
        return column
    try:
        pattern = re.compile(groups)
    except re.error as error:
        raise InputError(f"--groups {quoted(groups)} is no regular expression: {error}") from None
    return [_group(pattern, name) for name in listing.files]


def _group(pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search(name)
    if found is None:
        raise InputError(
            f"--groups {quoted(pattern.pattern)} matches nothing in {quoted(name)}; give a column "
            f"of the .csv file or a regular expression such as 'video(\\d+)'"
        )
    return found[1] or "" if pattern.groups else found[0]


def _frozen(
    encoder: Encoder, listing: Listing, labels: np.ndarray, rule: str, groups: list[str] | None
) -> dict[str, LeftOut]:
    """Return the accuracy of the built-in ImageNet encoder, if it is installed and not in use."""
    try:
        frozen = load(IMAGENET)
    except InputError:
        return {}
    if encoder.recipe.backbone == frozen.recipe.backbone:
        return {}
    decoded = decode_files(listing, frozen.recipe.image)
    pixels = np.stack([image for image in decoded if isinstance(image, np.ndarray)])
    embedded = embed_images(frozen, pixels, "cpu")[0]
    return {IMAGENET: left_out_accuracy(Supports(embedded, labels), rule, None, groups)}


def _features(x: torch.Tensor) -> Embeddings:
    return Embeddings(x, x, x)


def _percent(found: LeftOut) -> str:
    low, high = found.interval
    return f"{found.accuracy:.1%} (95 % interval {low:.1%} to {high:.1%}, {found.total} images)"
