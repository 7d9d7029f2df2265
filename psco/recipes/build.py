"""Builds the objects that a recipe names."""

from __future__ import annotations

import sys

from psco.errors import InputError
from psco.methods import METHODS, Method
from psco.networks import (
    BACKBONES,
    FrozenBackbone,
    ImageFormat,
    Networks,
    load_backbone,
    output_width,
    predictor,
    projector,
)
from psco.ops.ranks import rank
from psco.recipes.recipe import Parts, Recipe
from psco.recipes.size import check_size
from psco.views import VIEW_PARTS, TwoViews, View
from psco.views.pair import AnyView


def build_method(recipe: Recipe, init: bool = False, quiet: bool = False) -> Method:
    """Return the method with random weights, drawn from torch's global random state.

    Parameters
    ----------
    recipe
        The settings.
    init
        Load the initial weights of the backbone that the recipe names, as at the start of a run.
        They are not needed where other weights are loaded afterwards.
    quiet
        Do not print what was loaded.

    Raises
    ------
    InputError
        If the method needs weights and the recipe names none, if they do not fit the backbone, or
        if the settings make no network, or one above the limit of `psco.recipes.size`.
    """
    check_size(lambda: _build(recipe, init=False, quiet=True))
    return _build(recipe, init, quiet)


def _build(recipe: Recipe, init: bool, quiet: bool) -> Method:
    image, heads = recipe.image, recipe.heads
    factory = BACKBONES[recipe.backbone.name]
    options = recipe.backbone.options
    if METHODS[recipe.method.name].needs_weights and not (recipe.init or options.get("pretrained")):
        raise InputError(
            f"method {recipe.method.name!r} needs weights, got none; --init takes a .safetensors, "
            f".pth or .pt file or a run folder, and backbones of timm take backbone.pretrained=true"
        )
    if not init and "pretrained" in options:
        options["pretrained"] = False
    backbone = factory(image.channels, image.size, **options)
    if init and recipe.init is not None:  # before any method copies the backbone
        note = load_backbone(backbone, recipe.init)
        if rank() == 0 and not quiet:
            print(f"note: {note}", file=sys.stderr)
    width = output_width(backbone, image.channels, image.size)
    if recipe.train.freeze == "backbone":
        backbone = FrozenBackbone(backbone, width)
    g = projector(width, heads.hidden, heads.out)
    h = predictor(heads.out, heads.hidden) if heads.predictor else None
    seen = ImageFormat(image.size, image.channels, tuple(image.mean), tuple(image.std))
    networks = Networks(backbone, g, h, width, heads.out, seen)
    method = METHODS[recipe.method.name](networks, **recipe.method.options)
    method.set_batch_size(recipe.train.batch_size)
    return method


def build_views(recipe: Recipe, given: tuple[AnyView, AnyView] | None = None) -> TwoViews:
    """Return the random views; ``given`` replaces those of the recipe, but not their number."""
    views = recipe.views
    a, b = given or (_view(recipe, views.view_a), _view(recipe, views.view_b))
    return TwoViews(a, b, views.count, views.shared_flip)


def _view(recipe: Recipe, parts: Parts) -> View:
    built = [VIEW_PARTS[name](**options) for name, options in parts.items()]
    return View(built, recipe.image.size, recipe.image.mean, recipe.image.std)
