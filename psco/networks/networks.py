"""The three networks of the paper, f, g and h, as one object."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError
from psco.networks.image_format import ImageFormat


class Networks(nn.Module):
    """Backbone f, projector g and predictor h.

    Parameters
    ----------
    backbone
        f, maps images to features (B, width).
    projector
        g, maps features to (B, dim); None for the identity.
    predictor
        h, maps (B, dim) to (B, dim); None for the identity.
    width, dim
        Numbers of features and of coordinates of a representation. None reads them off the layers
        of the projector when they are asked for.
    image
        The images that the backbone takes; None if that is unknown.
    """

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module | None = None,
        predictor: nn.Module | None = None,
        width: int | None = None,
        dim: int | None = None,
        image: ImageFormat | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = nn.Identity() if projector is None else projector
        self.predictor = nn.Identity() if predictor is None else predictor
        self._width, self._dim, self._image = width, dim, image

    @property
    def has_predictor(self) -> bool:
        """Whether there is an h."""
        return not isinstance(self.predictor, nn.Identity)

    @property
    def width(self) -> int:
        """Number of features of the backbone; InputError if it is unknown."""
        if (width := self._known_width()) is None:
            raise InputError("the width of the backbone is unknown: give Networks its width")
        return width

    def _known_width(self) -> int | None:
        layers = (m for m in self.projector.modules() if isinstance(m, nn.Linear))
        return self._width or next((layer.in_features for layer in layers), None)

    @property
    def dim(self) -> int:
        """Number d of coordinates of a representation; InputError if it is unknown."""
        if self._dim is not None:
            return self._dim
        for layer in reversed(list(self.projector.modules())):
            for name in ("out_features", "num_features"):
                if isinstance(found := getattr(layer, name, None), int):
                    return found
        kind = type(self.projector).__name__
        raise InputError(f"the output width of the projector {kind} is unknown: give dim")

    @property
    def image(self) -> ImageFormat:
        """Size, channels and normalisation of the images; InputError if they are unknown."""
        if self._image is None:
            raise InputError("the format of the images is unknown: give Networks an ImageFormat")
        return self._image

    def project(self, features: Tensor) -> Tensor:
        """Return Normalize(g) of features (B, width): (B, d)."""
        return F.normalize(self.projector(features), dim=1)

    def predict(self, features: Tensor) -> Tensor:
        """Return Normalize(h∘g) of features (B, width): (B, d)."""
        return F.normalize(self.predictor(self.projector(features)), dim=1)

    def key(self, x: Tensor) -> Tensor:
        """Return Normalize(g∘f) of images (B, C, H, W): (B, d)."""
        return self.project(self.backbone(x))

    def query(self, x: Tensor) -> Tensor:
        """Return Normalize(h∘g∘f) of images (B, C, H, W): (B, d)."""
        return self.predict(self.backbone(x))

    def without_predictor(self) -> Networks:
        """Return f and g, shared with this object, without h."""
        return Networks(self.backbone, self.projector, None, self._width, self._dim, self._image)

    def without_heads(self) -> Networks:
        """Return f alone, shared with this object."""
        return Networks(self.backbone, width=self._known_width(), image=self._image)
