"""The contrast with a long queue in few passes over memory; the same numbers as the plain form.

Logits against a queue of M keys are the largest tensor of a step. The plain form writes it five
times over (product, temperature, mask, logarithm of the softmax, gradient) and reads it as often.
Here it is written once, and by the kernel never: where a loss is a mean over rows, its gradient is
known as soon as the softmax is, up to the factor that comes from behind.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from psco.kernels import contrast_keys, supports_contrast

Also = Literal["none", "own", "all"]  # targets that are keys too: no one's, the query's own, all


def contrast_with_queue(
    q: Tensor,
    z: Tensor,
    queue: Tensor,
    temperature: float,
    batch_negatives: bool = False,
    spared: Tensor | None = None,
) -> Tensor:
    """Give the mean cross-entropy of picking z_n for q_n among z_n and the queue.

    Parameters
    ----------
    q, z
        (N, d) queries and their own keys, of unit length.
    queue
        (M, d) other keys, of unit length.
    temperature
        τ > 0.
    batch_negatives
        Whether the keys of the other queries, z_m, are among the negatives.
    spared
        (N, K) rows of the queue that are no negatives of the query; None for none.

    Returns
    -------
    Tensor
        A scalar.
    """
    if _writes_once(q, len(queue) + len(z), temperature, z, queue):
        return _mean_contrast(q, z, queue, temperature, "all" if batch_negatives else "own", spared)
    return plain_contrast(q, z, queue, temperature, batch_negatives, spared)


def contrast_with_target(q: Tensor, target: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """Give the mean of log Σ_m exp(q_n · k_m / τ) − q_n · t_n / τ.

    Where t_n is the mean of some keys, that is the cross-entropy of picking one of them, averaged
    over them.

    Parameters
    ----------
    q, target
        (N, d) queries, of unit length, and what they are drawn to, t.
    keys
        (M, d), k, of unit length.
    temperature
        τ > 0.

    Returns
    -------
    Tensor
        A scalar.
    """
    if _writes_once(q, len(keys), temperature, target, keys):
        return _mean_contrast(q, target, keys, temperature, "none")
    scaled = q / temperature
    return ((scaled @ keys.T).logsumexp(dim=1) - (scaled * target).sum(dim=1)).mean()


def _writes_once(q: Tensor, keys: int, temperature: float, *others: Tensor) -> bool:
    """Say whether a contrast of queries with so many keys needs one pass over logits."""
    if keys == 0:
        return False
    usual = not any(other.requires_grad or other.dtype != q.dtype for other in others)
    # Unit vectors have logits within 1/τ of zero: their exponentials need no shift to be added up.
    largest = 1 / temperature + math.log(keys)  # logarithm of the sum, at most
    safe = largest < 0.9 * math.log(torch.finfo(q.dtype).max)
    return usual and safe and not torch.is_autocast_enabled(q.device.type)


def plain_contrast(
    q: Tensor,
    z: Tensor,
    queue: Tensor,
    temperature: float,
    batch_negatives: bool = False,
    spared: Tensor | None = None,
) -> Tensor:
    """Give the same, line by line as it is defined, for any numbers and gradients."""
    N = len(q)
    logits = q @ torch.cat([z, queue]).T / temperature  # (N, N + M)
    if not batch_negatives:
        others = ~torch.eye(N, dtype=torch.bool, device=q.device)
        logits[:, :N].masked_fill_(others, -torch.inf)
    if spared is not None:
        logits.scatter_(1, N + spared, -torch.inf)
    return F.cross_entropy(logits, torch.arange(N, device=q.device))


def _mean_contrast(
    q: Tensor,
    target: Tensor,
    keys: Tensor,
    temperature: float,
    also: Also,
    spared: Tensor | None = None,
) -> Tensor:
    loss: Tensor = _Contrast.apply(  # type: ignore[no-untyped-call]
        q, target, keys, temperature, also, spared
    )
    return loss


class _Contrast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        target: Tensor,
        keys: Tensor,
        temperature: float,
        also: Also,
        spared: Tensor | None,
    ) -> Tensor:
        if also != "all" and spared is None and supports_contrast(q, target, keys):
            loss, gradient = contrast_keys(q, target, keys, temperature, also == "own")
        else:
            loss, gradient = _contrast(q, target, keys, temperature, also, spared)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient * ctx.saved_tensors[0], None, None, None, None, None


def _contrast(
    q: Tensor,
    target: Tensor,
    keys: Tensor,
    temperature: float,
    also: Also,
    spared: Tensor | None,
) -> tuple[Tensor, Tensor]:  # the mean loss and its gradient (N, d)
    scaled = q / temperature
    own = (scaled * target).sum(dim=1)  # (N,)
    p = (scaled @ keys.T).exp_()  # (N, M), the softmax but for its sum
    if spared is not None:
        p.scatter_(1, spared, 0.0)
    total, expected = p.sum(dim=1), p @ keys  # (N,), (N, d), the mean key but for the sum
    if also == "all":
        near = (scaled @ target.T).exp_()  # (N, N)
        total, expected = total + near.sum(dim=1), expected.addmm_(near, target)
    elif also == "own":
        near = own.exp()  # (N,)
        total, expected = total + near, expected.addcmul_(near[:, None], target)
    gradient = expected.div_(total[:, None]).sub_(target).div_(temperature * len(q))
    return (total.log() - own).mean(), gradient
