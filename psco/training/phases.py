"""What changes during a run: the size of its views, and the blocks that are trained.

Both depend on the fraction of the run that is done and on nothing else. A run limited by steps or
epochs therefore changes at the same step whether it was interrupted or not.
"""

from __future__ import annotations

from psco.errors import InputError
from psco.methods import Method
from psco.networks import ConvNet, output_width
from psco.recipes.recipe import Recipe, TrainSettings
from psco.training.frozen import CachedViews
from psco.views import TwoViews


class Phases:
    """The views and the frozen blocks at each point of a run.

    Parameters
    ----------
    views
        The views at full size.
    train
        The settings: ``small_size``, ``small_until``, ``freeze_blocks`` and ``freeze_from``.
    """

    def __init__(self, views: TwoViews | CachedViews, train: TrainSettings) -> None:
        self._views = self._small = views
        if train.small_size is not None and isinstance(views, TwoViews):
            self._small = views.at_size(train.small_size)
        self._train = train
        self._is_frozen = False

    def views(self, done: float) -> TwoViews | CachedViews:
        """Return the views of a step, with the fraction ``done`` of the run completed."""
        return self._small if done < self._train.small_until else self._views

    def freeze(self, method: Method, done: float) -> None:
        """Freeze the first blocks of a method if it is time to, or train them again.

        Without a gradient, no optimiser changes a weight. BatchNorm keeps using the statistics of
        the batch, since the blocks still run in their fast form then.
        """
        freezes = self._train.freeze_blocks > 0 and done >= self._train.freeze_from
        if freezes != self._is_frozen:
            assert isinstance(method.backbone, ConvNet)  # see check_phases
            for block in method.backbone.blocks()[: self._train.freeze_blocks]:
                for layer in block:
                    layer.requires_grad_(not freezes)
            self._is_frozen = freezes


def check_phases(method: Method, recipe: Recipe, has_own_views: bool, ranks: int) -> None:
    """Raise InputError if a method cannot be trained in the phases or on the views of a recipe."""
    train, name = recipe.train, recipe.method.name
    if (count := recipe.views.count) > 2 and not method.takes_more_views:
        raise InputError(f"views.count must be 2 for method {name!r}, got {count}")
    shares = recipe.views.shared_flip > 0 or recipe.views.count > 2
    if train.freeze is not None and (shares or train.small_size or train.freeze_blocks):
        raise InputError(
            f"train.freeze={train.freeze} takes no views.count, views.shared_flip, "
            f"train.small_size or train.freeze_blocks; leave them at their defaults"
        )
    if train.small_size is not None:
        _check_small(method, recipe, train.small_size, has_own_views)
    if train.freeze_blocks:
        _check_blocks(method, recipe, ranks)


def _check_small(method: Method, recipe: Recipe, small: int, has_own_views: bool) -> None:
    setting, image = f"train.small_size={small} is not possible", recipe.image
    if has_own_views:
        raise InputError(f"{setting}: views that are functions have their own size")
    _check_method(method, recipe, setting)
    widths = [output_width(method.backbone, image.channels, side) for side in (small, image.size)]
    if widths[0] != widths[1]:
        raise InputError(
            f"{setting}: backbone {recipe.backbone.name!r} has {widths[0]} features at {small} px "
            f"and {widths[1]} at {image.size} px; choose a size at which they are equal"
        )


def _check_blocks(method: Method, recipe: Recipe, ranks: int) -> None:
    blocks = recipe.train.freeze_blocks
    setting = f"train.freeze_blocks={blocks} is not possible"
    _check_method(method, recipe, setting)
    if ranks > 1:
        raise InputError(f"{setting}: it trains on one device only, not on {ranks} ranks")
    backbone = method.backbone
    if not isinstance(backbone, ConvNet):
        name = recipe.backbone.name
        raise InputError(f"{setting}: it requires backbone conv4 or conv5, got {name!r}")
    if blocks >= (depth := len(backbone.blocks())):
        raise InputError(f"{setting}: {recipe.backbone.name} has {depth} blocks; freeze fewer")


def _check_method(method: Method, recipe: Recipe, setting: str) -> None:
    if method.views != 2 or method.episode is not None:
        raise InputError(f"{setting}: method {recipe.method.name!r} does not train on two views")
