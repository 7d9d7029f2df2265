"""Backbones of timm by name, such as ``timm:resnet26`` (extra ``vision``)."""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import nn

from psco.errors import InputError, import_optional, quoted

PREFIX = "timm:"


def timm_backbone(name: str) -> Callable[..., nn.Module]:
    """Return the factory of a timm model; ``name`` is the part after ``timm:``.

    timm is imported when the factory is called. Names such as ``hf-hub:owner/model``, for which it
    would fetch files of that owner, are refused: a recipe may come from anybody.
    """

    def make(channels: int, image_size: int, pretrained: bool = False) -> nn.Module:  # noqa: ARG001
        """Return the model up to its pooled features (B, d).

        Raises
        ------
        InputError
            If timm is missing or broken, or has no such model or weights.
        """
        if not re.fullmatch(r"[\w.-]+", name):
            raise InputError(
                f"the name of a timm model must have letters, digits, '_', '.' and '-' only, got "
                f"{quoted(name)}"
            )
        timm = import_optional("timm", "vision")
        try:
            model: nn.Module = timm.create_model(
                name, pretrained=pretrained, num_classes=0, in_chans=channels
            )
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"timm cannot create {name!r}: {reason}; timm.list_models() lists the names"
            ) from None
        return model

    return make
