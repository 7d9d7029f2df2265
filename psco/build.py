"""From a recipe to the objects it names."""

from __future__ import annotations

from torch import nn

from psco.methods import METHODS
from psco.networks import BACKBONES, output_width, predictor, projector
from psco.recipe import Parts, Recipe
from psco.views import VIEW_PARTS, TwoViews, View


def build_method(recipe: Recipe) -> nn.Module:
    """Make the method with fresh weights, from torch's global random state."""
    image, heads = recipe.image, recipe.heads
    factory = BACKBONES[recipe.backbone.name]
    backbone = factory(image.channels, image.size, **recipe.backbone.options)
    width = output_width(backbone, image.channels, image.size)
    g = projector(width, heads.hidden, heads.out)
    h = predictor(heads.out, heads.hidden) if heads.predictor else None
    return METHODS[recipe.method.name](backbone, g, h, **recipe.method.options)


def build_views(recipe: Recipe) -> TwoViews:
    """Make the pair of random views."""
    return TwoViews(_view(recipe, recipe.views.view_a), _view(recipe, recipe.views.view_b))


def _view(recipe: Recipe, parts: Parts) -> View:
    made = [VIEW_PARTS[name](**options) for name, options in parts.items()]
    return View(made, recipe.image.size, recipe.image.mean, recipe.image.std)
