"""What an ONNX file computes, as torch modules: from decoded pixels to embeddings or answers."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.classifier.model import Model
from psco.evaluation.embed import Encoder
from psco.evaluation.rules import Embeddings, Heads
from psco.evaluation.rules.nearest_mean import ClassMean, NearestMean
from psco.evaluation.rules.prototype import Prototype
from psco.evaluation.rules.rule import Scorer
from psco.export.onnx.views import fixed_views, plain_layers
from psco.ops.prototypes import class_means, prototypes

M = TypeVar("M", bound=nn.Module)
EMBEDDINGS = ("features", "support", "query")
ANSWERS = ("scores", "probabilities", "similarity", "unknown")


class EncoderGraph(nn.Module):
    """Embeds pictures as `Encoder.embed_batch` does, views at test included.

    Parameters
    ----------
    encoder
        The network; it is copied, and BatchNorm is folded into the layers before it.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        image = encoder.recipe.image
        self.method = fold_batchnorm(encoder.method)
        self.views = nn.ModuleList([plain_layers(encoder.recipe), *fixed_views(encoder.recipe)])
        self.register_buffer("mean", torch.tensor(image.mean)[:, None, None])
        self.register_buffer("std", torch.tensor(image.std)[:, None, None])

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return features (n, width), and support and query (n, d) of images (n, H, W, C) uint8."""
        pixels = images.permute(0, 3, 1, 2).float() / 255
        views = torch.cat([view(pixels) for view in self.views])  # (v n, C, size, size)
        features = self.method.backbone((views - self.mean) / self.std)
        return (
            self._by_view(features).mean(dim=0),
            self._mean_direction(self.method.support_head(features)),
            self._mean_direction(self.method.query_head(features)),
        )

    def _by_view(self, rows: Tensor) -> Tensor:  # (v n, d) -> (v, n, d)
        return rows.reshape(len(self.views), -1, rows.shape[1])

    def _mean_direction(self, units: Tensor) -> Tensor:  # (v n, d) -> (n, d)
        return units if len(self.views) == 1 else F.normalize(self._by_view(units).sum(0), dim=1)


class ClassifierGraph(nn.Module):
    """Classifies pictures as `Model.predict` does.

    Parameters
    ----------
    encoder, model
        The network and the fitted model, whose rule must be inductive.
    """

    centres: Tensor

    def __init__(self, encoder: Encoder, model: Model) -> None:
        super().__init__()
        self.encoder = EncoderGraph(encoder)
        self.adapted = None if model.adapted is None else _head_modules(model.adapted)
        self.register_buffer("centres", torch.from_numpy(model.prototypes.copy()).T)  # (d, N)
        self._scorer = _scorer(model)
        self._temperature, self._threshold = model.temperature, model.threshold
        self._by_similarity = model.rejects_by_similarity

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the answers for images (n, H, W, C) uint8.

        Returns
        -------
        scores, probabilities, similarity, unknown
            (n, N), (n, N), (n,) float32 and (n,) bool; see `Model`.
        """
        features, support, query = self.encoder(images)
        if self.adapted is not None:
            u = self.adapted["projector"](features)
            support, query = (F.normalize(v, dim=1) for v in (u, self.adapted["predictor"](u)))
        cosines = query @ self.centres  # (n, N)
        scores = cosines
        if self._scorer is not None:
            scores = self._scorer(Embeddings(features[None], support[None], query[None]))[0]
        probabilities = (scores / self._temperature).softmax(dim=1)
        similarity = cosines.amax(dim=1)
        value = similarity if self._by_similarity else probabilities.amax(dim=1)
        never = float("-inf")
        unknown = value < (never if self._threshold is None else self._threshold)
        return scores, probabilities, similarity, unknown


def fold_batchnorm(module: M) -> M:
    """Return a copy in evaluation mode, with BatchNorm folded where it follows in a sequence.

    Elsewhere, as in residual blocks, the exporter folds it into the convolution.
    """
    folded = copy.deepcopy(module).eval()
    for sequence in [m for m in folded.modules() if isinstance(m, nn.Sequential)]:
        for place in range(len(sequence) - 1):
            layer, norm = sequence[place], sequence[place + 1]
            if isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
                _fold(layer, norm)
                sequence[place + 1] = nn.Identity()
    return folded


def _scorer(model: Model) -> Scorer | None:
    """Return the rule without its supports where their means suffice; None for the cosines."""
    if isinstance(model.rule, Prototype):
        return None
    features, ways = model.prepared.features, len(model.classes)
    if isinstance(model.rule, ClassMean):
        centres = prototypes(F.normalize(features, dim=1), model.targets, ways)
        return lambda query: F.normalize(query.features, dim=-1) @ centres.T
    if isinstance(model.rule, NearestMean):
        means = class_means(features, model.targets, ways)
        return lambda query: -(query.features[:, :, None] - means).square().sum(dim=3)
    return model.scorer


@torch.no_grad()
def _fold(layer: nn.Linear, norm: nn.BatchNorm1d) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = (norm.running_var + norm.eps).rsqrt()  # (out,)
    if norm.affine:
        scale = scale * norm.weight
    shift = norm.running_mean if layer.bias is None else norm.running_mean - layer.bias
    bias = -shift * scale + (norm.bias if norm.affine else 0)
    layer.weight.mul_(scale[:, None])
    layer.bias = nn.Parameter(bias)


def _head_modules(heads: Heads) -> nn.ModuleDict:
    modules = {"projector": heads.projector, "predictor": heads.predictor}
    return nn.ModuleDict({name: fold_batchnorm(head) for name, head in modules.items()})
