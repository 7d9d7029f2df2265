"""The contrastive loss, Eq. (1): the plain form, a form for long queues, and the choice.

Logits against a queue of M keys are the largest tensor of a step. The plain form writes it five
times (product, temperature, mask, log-softmax, gradient) and reads it as often. The fast form
writes it once, and the native kernel never: for a loss that is a mean over rows, the gradient is
known as soon as the softmax is, up to the upstream factor.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from psco.errors import InputError
from psco.ops.native import contrast_keys, supports_contrast
from psco.ops.ranks import gather, own_rows

Targets = Literal["no", "own", "all"]  # which targets are keys too: none, the query's own, all


class PseudoLabels(NamedTuple):
    """The matrix A (N, NK) of a pseudo-task, not written down.

    The ones of row n are at columns nK … nK + K − 1: the shots of a query stand side by side. With
    several processes A has the rows of one of them, and the columns of all.
    """

    first: int  # row of the whole mini-batch that row 0 is
    total: int  # N of the whole mini-batch
    counted: Tensor | None = None  # (total, K) bool, at least one a row; None: all shots count

    def fraction(self, flags: Tensor) -> Tensor:
        """Return the fraction of the shots that count for which a flag is set.

        ``flags`` (N, K) are those of the rows of A. Shots behind the first K do not count.
        """
        flags = gather(flags)
        weight = torch.ones_like(flags) if self.counted is None else self.counted
        weight = weight[:, : flags.shape[1]]
        return (flags & weight).sum() / weight.sum().clamp(min=1)


def pseudo_task(queue: Tensor, shots: Tensor) -> tuple[Tensor, PseudoLabels]:
    """Return the shots s (NK, d) of a pseudo-task and their labels A (N, NK).

    Parameters
    ----------
    queue
        (M, d) keys.
    shots
        (N, K) int64 rows of the queue that each query has selected.
    """
    everyone = gather(shots)
    s = queue.index_select(0, everyone.flatten())  # (NK, d)
    return s, PseudoLabels(own_rows(len(shots)).start, len(everyone))


def contrastive_loss(
    q: Tensor, k: Tensor, positives: Tensor | PseudoLabels, temperature: float
) -> Tensor:
    """Contrast queries with keys, Eq. (1), for any number of positives per query.

    Parameters
    ----------
    q
        (N, d) query representations of unit length.
    k
        (M, d) key representations of unit length.
    positives
        (N, M) matrix A of zeros and ones (or bools): which key is a positive of which query; or
        the pseudo-labels of shots.
    temperature
        τ > 0.

    Returns
    -------
    Tensor
        The mean over the queries, a scalar.

    Raises
    ------
    InputError
        If a query has no positive key, or the shapes or the temperature do not fit.
    """
    if temperature <= 0:
        raise InputError(f"temperature must be > 0, got {temperature}")
    if isinstance(positives, PseudoLabels):
        return _contrast_with_shots(q, k, positives, temperature)
    if positives.shape != (len(q), len(k)):
        raise InputError(
            f"positives must be ({len(q)}, {len(k)}) for {len(q)} queries and {len(k)} keys, "
            f"got {tuple(positives.shape)}"
        )
    empty = (positives.sum(dim=1) == 0).nonzero()
    if len(empty):
        raise InputError(f"query {int(empty[0])} has no positive key: every row of A needs a one")
    A, logits = positives.to(q.dtype), q @ k.T / temperature  # (N, M), (N, M)
    return (logits.logsumexp(dim=1) - (logits * A).sum(dim=1) / A.sum(dim=1)).mean()


def _contrast_with_shots(q: Tensor, s: Tensor, A: PseudoLabels, temperature: float) -> Tensor:
    first, N, counted = A
    rows = slice(first, first + len(q))
    if counted is None:  # the mean of the logits of own shots is the logit of their mean
        target = s if len(s) == N else s.view(N, -1, s.shape[1]).mean(dim=1)  # (N, d)
        return _contrast_with_target(q, target[rows], s, temperature)
    logits = q @ s.T / temperature  # (N, NK)
    own = logits.view(len(q), N, -1).diagonal(first)  # (K, N)
    mine = counted[rows]  # (N, K)
    own = (own * mine.T).sum(dim=0) / mine.sum(dim=1)  # (N,)
    logits = logits.masked_fill(~counted.flatten(), -torch.inf)
    return (logits.logsumexp(dim=1) - own).mean()


def _contrast_with_target(q: Tensor, target: Tensor, keys: Tensor, temperature: float) -> Tensor:
    """Return the mean over n of log Σ_m exp(q_n · k_m / τ) − q_n · t_n / τ."""
    if _can_be_fused(q, len(keys), temperature, target, keys):
        return _fused_contrast(q, target, keys, temperature, "no")
    scaled = q / temperature
    return ((scaled @ keys.T).logsumexp(dim=1) - (scaled * target).sum(dim=1)).mean()


def contrast_with_queue(
    q: Tensor,
    z: Tensor,
    queue: Tensor,
    temperature: float,
    batch_negatives: bool = False,
    spared: Tensor | None = None,
) -> Tensor:
    """Contrast q_n with its own key z_n among z_n and the queue: Eq. (1) with one positive.

    Parameters
    ----------
    q, z
        (N, d) queries and their own keys, of unit length.
    queue
        (M, d) other keys, of unit length.
    temperature
        τ > 0.
    batch_negatives
        Whether the keys z_m of the other queries are negatives too.
    spared
        (N, K) rows of the queue that are not negatives of the query; None for none.

    Returns
    -------
    Tensor
        The mean cross-entropy, a scalar.
    """
    if _can_be_fused(q, len(queue) + len(z), temperature, z, queue):
        targets: Targets = "all" if batch_negatives else "own"
        return _fused_contrast(q, z, queue, temperature, targets, spared)
    return plain_contrast_with_queue(q, z, queue, temperature, batch_negatives, spared)


def plain_contrast_with_queue(
    q: Tensor,
    z: Tensor,
    queue: Tensor,
    temperature: float,
    batch_negatives: bool = False,
    spared: Tensor | None = None,
) -> Tensor:
    """Return what `contrast_with_queue` does, as it is defined: for any numbers and gradients."""
    N = len(q)
    logits = q @ torch.cat([z, queue]).T / temperature  # (N, N + M)
    if not batch_negatives:
        others = ~torch.eye(N, dtype=torch.bool, device=q.device)
        logits[:, :N].masked_fill_(others, -torch.inf)
    if spared is not None:
        logits.scatter_(1, N + spared, -torch.inf)
    return F.cross_entropy(logits, torch.arange(N, device=q.device))


def _can_be_fused(q: Tensor, keys: int, temperature: float, *others: Tensor) -> bool:
    """Whether loss and gradient can be computed in one pass over the logits of ``keys`` keys."""
    if keys == 0:
        return False
    constant = not any(other.requires_grad or other.dtype != q.dtype for other in others)
    # Unit vectors have logits within 1/τ of zero: their exponentials can be summed unshifted.
    log_sum = 1 / temperature + math.log(keys)  # at most
    finite = log_sum < 0.9 * math.log(torch.finfo(q.dtype).max)
    return constant and finite and not torch.is_autocast_enabled(q.device.type)


def _fused_contrast(
    q: Tensor,
    target: Tensor,
    keys: Tensor,
    temperature: float,
    targets: Targets,
    spared: Tensor | None = None,
) -> Tensor:
    loss: Tensor = _Contrast.apply(  # type: ignore[no-untyped-call]
        q, target, keys, temperature, targets, spared
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
        targets: Targets,
        spared: Tensor | None,
    ) -> Tensor:
        if targets != "all" and spared is None and supports_contrast(q, target, keys):
            loss, gradient = contrast_keys(q, target, keys, temperature, targets == "own")
        else:
            loss, gradient = _loss_and_gradient(q, target, keys, temperature, targets, spared)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return upstream * ctx.saved_tensors[0], None, None, None, None, None


def _loss_and_gradient(
    q: Tensor,
    target: Tensor,
    keys: Tensor,
    temperature: float,
    targets: Targets,
    spared: Tensor | None,
) -> tuple[Tensor, Tensor]:  # the mean loss (), its gradient (N, d)
    scaled = q / temperature
    own = (scaled * target).sum(dim=1)  # (N,)
    p = (scaled @ keys.T).exp_()  # (N, M), the softmax but for its sum
    if spared is not None:
        p.scatter_(1, spared, 0.0)
    total, expected = p.sum(dim=1), p @ keys  # (N,), (N, d), the mean key but for the sum
    if targets == "all":
        near = (scaled @ target.T).exp_()  # (N, N)
        total, expected = total + near.sum(dim=1), expected.addmm_(near, target)
    elif targets == "own":
        near = own.exp()  # (N,)
        total, expected = total + near, expected.addcmul_(near[:, None], target)
    gradient = expected.div_(total[:, None]).sub_(target).div_(temperature * len(q))
    return (total.log() - own).mean(), gradient
