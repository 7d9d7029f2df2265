"""The recipe for data that names none: by the name of a data set, or by a look at the images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from psco.data import base_name
from psco.data.reading.decode import DecodeError, decode_image
from psco.data.reading.folders import list_images
from psco.data.reading.shardpaths import are_shards
from psco.errors import InputError
from psco.networks.published import PUBLISHED
from psco.recipes.layers import recipe_names

Kind = Literal["photographs", "drawings", "grey"]
_SAMPLE = 48  # images looked at
_SIDE = 64  # px at which they are looked at
_COLOUR = 10.0  # mean difference of the largest and smallest channel, of 255
_FLAT = 0.6  # fraction of the pixels of a drawing that show the paper
_PAPER = 24  # grey levels by which the paper may vary


class Choice(NamedTuple):
    """A recipe, and one sentence on why and how to choose another; empty for a named data set."""

    recipe: str
    note: str = ""


def choose_recipe(data: object) -> Choice:
    """Return the recipe of a named data set, or one that fits the images.

    A folder, a zip archive or a CSV file is looked into: colour photographs get a frozen ImageNet
    network, if its weights are installed, and drawings get views for drawings. Everything else
    gets ``own-images``.
    """
    name = base_name(data)
    if name in recipe_names():
        return Choice(name)
    kind = look_at(data)
    weights = PUBLISHED["imagenet"]
    if kind == "photographs" and weights.is_installed:
        return Choice(
            "own-photos-frozen",
            "these look like colour photographs: recipe own-photos-frozen trains heads on a frozen "
            "ImageNet network; --recipe own-images trains a network from scratch",
        )
    if kind == "photographs":
        return Choice(
            "own-images",
            "these look like colour photographs: recipe own-images trains a network from scratch; "
            f"own-photos-frozen is faster and better, but {weights.missing}",
        )
    if kind == "drawings":
        return Choice(
            "own-drawings",
            "these look like drawings on plain paper: recipe own-drawings; "
            "--recipe own-images is for photographs",
        )
    return Choice("own-images")


def default_recipe(data: object) -> str:
    """Return the name of the recipe that `choose_recipe` chooses."""
    return choose_recipe(data).recipe


def kind_of_images(images: list[np.ndarray]) -> Kind:
    """Return what most of some images (H, W, 3) uint8 look like.

    Images with colour are photographs. Images without colour are drawings if most of their pixels
    have the grey level of the paper, and grey photographs otherwise.
    """
    kinds = [_kind_of_image(image.astype(np.int16)) for image in images]
    return max(("grey", "photographs", "drawings"), key=kinds.count)


def _kind_of_image(image: np.ndarray) -> Kind:
    if (image.max(axis=2) - image.min(axis=2)).mean() > _COLOUR:
        return "photographs"
    grey = image.mean(axis=2)
    paper = np.bincount(grey.astype(np.int64).ravel(), minlength=256).argmax()
    fraction = (np.abs(grey - paper) <= _PAPER).mean()
    return "drawings" if _FLAT <= fraction < 1 else "grey"  # 1: a blank image


def look_at(data: object) -> Kind | None:
    """Return the kind of the images in a folder, an archive or a CSV file; None for other data."""
    if not isinstance(data, (str, os.PathLike)) or are_shards(data):
        return None
    try:
        listing = list_images(Path(data))
    except InputError:  # reported when the images are loaded
        return None
    images = []
    for number in np.unique(np.linspace(0, len(listing) - 1, _SAMPLE).astype(int)).tolist():
        try:
            content = listing.content(number)
            images.append(decode_image(content, _SIDE, 3, name=listing.file_name(number)))
        except (DecodeError, InputError):
            continue
    return kind_of_images(images) if images else None
