"""Few-shot tasks of Gaussian clusters, for tests of classification rules."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from psco.evaluation.rules import RULES, Embeddings, Heads, SupportSet

# Rules that train the whole network take images, not embeddings: tests/methods/test_maml.py. Those
# of one method are tested with it, as in tests/methods/test_meta_gmvae.py.
NAMES = [
    name
    for name in RULES
    if not getattr(RULES[name], "needs_pixels", False) and not hasattr(RULES[name], "needs_method")
]
INDUCTIVE = [name for name in NAMES if not RULES[name].transductive]


def score(rule, support, labels, query, ways, heads=None, first=0):
    """Return the scores (T, Q, N) of a rule."""
    return rule(SupportSet(support, labels, ways, heads, first), query)


def equal_shots(tasks: int, ways: int, shots: int) -> torch.Tensor:
    """Return labels (T, NK) with the same number of shots for each class."""
    return torch.arange(ways).repeat_interleave(shots).expand(tasks, -1)


def part(embeddings: Embeddings, index: object) -> Embeddings:
    """Return the embeddings (T, n) at ``index`` along the second axis."""
    return Embeddings(
        embeddings.features[:, index], embeddings.support[:, index], embeddings.query[:, index]
    )


def embed(features: torch.Tensor, heads: Heads) -> Embeddings:
    """Return the embeddings (T, n) of features (T, n, width) as an encoder computes them."""
    with torch.no_grad():
        u = heads.projector(features.flatten(0, 1))
        v = heads.predictor(u)
    shape = (*features.shape[:2], -1)
    unit = F.normalize(u, dim=1).view(shape), F.normalize(v, dim=1).view(shape)
    return Embeddings(features, *unit)


def draw(labels, query_labels, ways, heads, separation=1.0, seed=0):
    """Draw Gaussian clusters, not of zero mean, for labels (T, S) and (T, Q)."""
    width = next(heads.projector.parameters()).shape[1]
    generator = torch.Generator().manual_seed(seed)
    centres = separation * torch.randn(len(labels), ways, width, generator=generator)

    def sample(y):
        noise = torch.randn(*y.shape, width, generator=generator)
        return centres.gather(1, y[..., None].expand(-1, -1, width)) + noise + 0.5

    return embed(sample(labels), heads), labels, embed(sample(query_labels), heads), ways
