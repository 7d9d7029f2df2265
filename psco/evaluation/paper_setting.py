"""Whether a result was obtained in the setting of the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence

from psco.data import ImageSet
from psco.data.sets.catalogue import BENCHMARKS
from psco.data.tasks import Tasks
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.published import CROSS_DOMAIN, published, row_recipe, trained_on
from psco.recipes.recipe import Recipe, load_recipe, recipe_names

_SPLIT, _QUERIES = "test", 15
_SECTIONS = ("image", "views", "backbone", "init", "heads", "method", "train")
_FREE = {"train": {"seed", "log_steps", "purity"}}  # settings that may differ
_ROTATIONS = {"omniglot": 4}  # the quarter turns of a character are classes
# Images of the whole test split, at least, where the catalogue has no exact number.
_AT_LEAST = {"cub": 2_800, "cropdiseases": 43_456, "chestx": 25_800}
_WHOLE = 0.99  # of the training: the last, incomplete batch of an epoch is dropped


def departures(encoder: Encoder, images: ImageSet, drawn: Sequence[Tasks]) -> list[str]:
    """List how a result departs from the setting of the paper's tables.

    Parameters
    ----------
    encoder
        The tested network.
    images, drawn
        What it was tested on.

    Returns
    -------
    list
        Short descriptions, such as ``"views.at_test is 4, not 0"``. A number of the paper may
        stand beside the result only if the list is empty.
    """
    method = encoder.recipe.method.name
    if not published(images.name, method):
        return [f"the paper has no result for {method} on {images.name}"]
    return [
        *data_departures(images, drawn),
        *_training_data(encoder, images),
        *_recipe(encoder.recipe, _recipe_name(images.name, method)),
        *_length(encoder),
    ]


def data_departures(images: ImageSet, drawn: Sequence[Tasks]) -> list[str]:
    """List how test images and tasks depart from those of the paper; see `departures`."""
    found = []
    if images.split != _SPLIT:
        found.append(f"tested on the split {images.split}, not {_SPLIT}")
    for queries in sorted({tasks.query.shape[2] for tasks in drawn} - {_QUERIES}):
        found.append(f"{queries} queries per class, not {_QUERIES}")
    if images.name not in BENCHMARKS:
        return [*found, f"{images.name} is not a data set of the paper"]
    classes, number = BENCHMARKS[images.name].splits[_SPLIT]
    turns = _ROTATIONS.get(images.name, 1)
    expected = (number or _AT_LEAST.get(images.name, 0)) * turns
    if len(images.classes) != classes * turns or len(images) < expected or not expected:
        size = f"{len(images.classes)} classes, {len(images)} images"
        found.append(f"{images.name} is not known to be complete: {size}")
    return found


def _training_data(encoder: Encoder, images: ImageSet) -> list[str]:
    data = trained_on(images.name)
    if encoder.trained_on != data:
        return [f"trained on {encoder.trained_on or 'unknown data'}, not {data}"]
    classes, number = BENCHMARKS[data].splits["train"]
    expected = (number or classes) * _ROTATIONS.get(data, 1)
    if encoder.images_trained_on != expected:
        return [f"trained on {encoder.images_trained_on} images, not {expected}"]
    return []


def _recipe_name(data: str, method: str) -> str:
    """Return the recipe of a table's row; some methods have their own."""
    own = f"{trained_on(data)}-{method}"
    if data in CROSS_DOMAIN and own in recipe_names():
        return own
    return row_recipe(data, method) or trained_on(data)


def _recipe(ours: Recipe, name: str) -> list[str]:
    try:
        theirs = load_recipe(name, [f"method.name={ours.method.name}"])
    except InputError:  # the method cannot be trained with this recipe
        return [f"there is no recipe {name} for {ours.method.name}"]
    found = []
    for section in _SECTIONS:
        mine, paper = ours.model_dump()[section], theirs.model_dump()[section]
        if not isinstance(mine, dict) or not isinstance(paper, dict):
            mine, paper = {"": mine}, {"": paper}
        for key in sorted((mine.keys() | paper.keys()) - _FREE.get(section, set())):
            if mine.get(key) != paper.get(key):
                setting = f"{section}.{key}".removesuffix(".")
                found.append(f"{setting} is {mine.get(key)}, not {paper.get(key)}")
    return found


def _length(encoder: Encoder) -> list[str]:
    train, steps = encoder.recipe.train, encoder.steps
    if train.steps is not None:
        wanted = float(train.steps)
    elif train.epochs is not None and encoder.method.episode is None:
        wanted = train.epochs * encoder.images_trained_on / train.batch_size / train.accumulate
    else:
        return []  # the length is compared by its setting alone
    return [f"trained for {steps} steps, not {wanted:.0f}"] if steps < _WHOLE * wanted else []
