"""Backbones of timm, by their names there: ``timm:resnet26`` (extra ``vision``)."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from psco.errors import InputError, import_optional

PREFIX = "timm:"


def timm_backbone(name: str) -> Callable[..., nn.Module]:
    """Give the factory of a model of timm; ``name`` is the one after ``timm:``.

    Nothing is imported before the factory is called.
    """

    def make(channels: int, image_size: int, pretrained: bool = False) -> nn.Module:  # noqa: ARG001
        """Make the model up to its pooled features (B, d).

        Raises
        ------
        InputError
            If timm cannot be used, or has no such model or no weights for it.
        """
        timm = import_optional("timm", "vision")
        try:
            model: nn.Module = timm.create_model(
                name, pretrained=pretrained, num_classes=0, in_chans=channels
            )
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"timm cannot make {name!r}: {reason}; timm.list_models() has the names"
            ) from None
        return model

    return make
