"""Small images, and few-shot tasks of separated features, for tests of methods with latents."""

from __future__ import annotations

import torch

from psco.evaluation.rules import Embeddings, Heads, SupportSet
from psco.methods import Method
from psco.networks import ImageFormat

IMAGE = ImageFormat(8, 1, (0.5,), (0.25,))


def images(number: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return IMAGE.from_unit(torch.rand(number, 1, 8, 8, generator=generator, dtype=torch.float64))


def task(method: Method, tasks: int = 2, separation: float = 4.0):
    """Return supports and queries, 3 ways, 1 shot and 4 queries, of separated classes."""
    generator = torch.Generator().manual_seed(2)
    centres = separation * torch.rand(tasks, 3, 12, generator=generator)

    def draw(labels):
        noise = 0.1 * torch.randn(tasks, len(labels), 12, generator=generator)
        x = centres[:, labels] + noise
        return Embeddings(x, x[..., :0], x[..., :0])

    truth = torch.arange(3).repeat_interleave(4)
    heads = Heads(method.projector, method.predictor, network=method, image_shape=(1, 8, 8))
    labels = torch.arange(3).expand(tasks, 3)
    return draw(torch.arange(3)), labels, draw(truth), heads, truth


def scores(rule, supports, labels, queries, heads, first=0):
    return rule(SupportSet(supports, labels, 3, heads, first), queries)
