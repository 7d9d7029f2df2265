"""The adaptation of standard heads g and h for many tasks at once, with gradients written out.

    g    x (T, S, width) - W1 - BatchNorm, ReLU - W2 - BatchNorm - u (T, S, d)
    h    u - W3 - BatchNorm, ReLU - W4 - v (T, S, d)

It is several times faster than `adapt_heads`, task by task with autograd, because

- the products of a few tasks are one call, and SGD needs one pass less (``sgd.py``);
- the inputs x are constant. W1 is its initial value, which all tasks share, plus a combination of
  the task's S supports, so training it needs only products with their S x S kernel;
- BatchNorm centres over the supports. The outputs of W1 are centred if x is, those of W3 are
  because u is, and the part of a gradient common to all supports never reaches a weight;
- the targets of Eq. (1) are the same in every step;
- the steps are compiled, and every core works on its own tasks (``parallel.py``).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.evaluation.rules.rule import Heads
from psco.evaluation.rules.sgd import (
    Trained,
    decay_factors,
    start_sgd,
    step,
    step_product,
)
from psco.networks.heads import Head
from psco.ops.parallel import on_one_core_each
from psco.ops.script import compile_script

Layer = TypeVar("Layer", bound=nn.Module)

_TASKS_PER_CORE = 2  # at once; about 10 MB each for the heads of the paper
_TASKS_IN_ALL = 4  # at once, if all cores share each step


def have_standard_form(heads: Heads) -> bool:
    """Whether the heads consist of the layers that `psco.networks` builds."""
    hidden = [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    forms = {heads.projector: [*hidden, nn.BatchNorm1d], heads.predictor: hidden}
    kinds = (nn.Sequential, Head)
    if any(
        type(head) not in kinds or [type(layer) for layer in head.children()] != form
        for head, form in forms.items()
    ):
        return False
    linears = _layers(heads.projector, nn.Linear) + _layers(heads.predictor, nn.Linear)
    norms = _layers(heads.projector, nn.BatchNorm1d) + _layers(heads.predictor, nn.BatchNorm1d)
    return (
        all(linear.bias is None for linear in linears)
        and [norm.affine for norm in norms] == [True, False, True]
        and all(norm.track_running_stats and norm.momentum is not None for norm in norms)
    )


def _layers(head: nn.Module, kind: type[Layer]) -> list[Layer]:
    return [layer for layer in head.children() if isinstance(layer, kind)]


def adapt_together(
    x: Tensor, labels: Tensor, xq: Tensor, heads: Heads, steps: int
) -> tuple[Tensor, Tensor]:
    """Adapt copies of heads of the standard form to each task, and apply them.

    Parameters
    ----------
    x, labels, xq
        (T, S, width) features of the supports, (T, S) their labels, (T, Q, width) features of the
        queries; T > 0, S > 1.
    heads
        Not changed.
    steps
        Steps of SGD.

    Returns
    -------
    tuple
        Adapted support embeddings (T, S, d) and query embeddings (T, Q, d), of unit length.
    """

    def adapt(some: slice) -> tuple[Tensor, Tensor]:
        return _adapt(x[some], labels[some], xq[some], heads, steps)

    compiled = isinstance(_compiled_training(), torch.jit.ScriptFunction)
    if x.device.type != "cpu":
        results = [adapt(slice(None))]
    elif compiled:
        # Fewer at once if some cores would get none.
        size = max(1, min(_TASKS_PER_CORE, len(x) // torch.get_num_threads()))
        results = on_one_core_each(adapt, _slices(len(x), size))
    else:
        results = [adapt(some) for some in _slices(len(x), _TASKS_IN_ALL)]
    supports, queries = zip(*results, strict=True)
    return torch.cat(supports), torch.cat(queries)


def _slices(count: int, size: int) -> list[slice]:
    return [slice(begin, begin + size) for begin in range(0, count, size)]


@torch.no_grad()
def _adapt(
    x: Tensor, labels: Tensor, xq: Tensor, heads: Heads, steps: int
) -> tuple[Tensor, Tensor]:
    T = len(x)
    linear1, linear2 = _layers(heads.projector, nn.Linear)
    linear3, linear4 = _layers(heads.predictor, nn.Linear)
    norm1, norm2 = _layers(heads.projector, nn.BatchNorm1d)
    (norm3,) = _layers(heads.predictor, nn.BatchNorm1d)
    W2 = start_sgd(linear2.weight.expand(T, -1, -1))  # (T, d, m)
    W3 = start_sgd(linear3.weight.T.expand(T, -1, -1))  # (T, d, m), transposed: the faster layout
    W4 = start_sgd(linear4.weight.expand(T, -1, -1))  # (T, d, m)
    hidden_g, last, hidden_h = _hidden(norm1, T), _norm(norm2, T), _hidden(norm3, T)

    mean = x.mean(dim=1, keepdim=True)  # (T, 1, width)
    basis = x - mean  # (T, S, width)
    # W1 = left · W₀ + aᵀ basis, with W₀ (m, width) and coefficients a.
    a = start_sgd(x.new_zeros(*x.shape[:2], len(linear1.weight)))  # (T, S, m)

    def products(inputs: Tensor) -> tuple[Tensor, Tensor]:  # with W₀ (T, n, m), basis (T, n, S)
        return inputs @ linear1.weight.T, inputs @ basis.mT

    same = (labels[:, :, None] == labels[:, None]).to(x.dtype)  # (T, S, S), the paper's A'
    targets = same / same.sum(dim=2, keepdim=True)  # rows sum to 1
    left = decay_factors(steps)
    train = _compiled_training()
    constants = targets, heads.temperature, left[:steps]
    train(products(basis), products(mean), a, hidden_g, W2, last, W3, hidden_h, W4, *constants)

    def project(inputs: Tensor) -> Tensor:
        outputs = torch.baddbmm(*products(inputs), a.value, beta=left[steps])  # (T, n, m)
        return _normalise(last, _infer(hidden_g, outputs) @ W2.value.mT)

    s, q = project(x), _infer(hidden_h, project(xq) @ W3.value) @ W4.value.mT
    return F.normalize(s, dim=2), F.normalize(q, dim=2)


@cache
def _compiled_training() -> Any:
    return compile_script(_train)


# The rest is compiled by TorchScript: functions, and named tuples instead of objects.


class _Norm(NamedTuple):
    """BatchNorm without affine map: running statistics (T, 1, n) of n channels of T tasks."""

    mean: Tensor
    var: Tensor
    momentum: float
    eps: float


class _Hidden(NamedTuple):
    """BatchNorm with scale and shift (T, 1, m), then ReLU, of m hidden units of T tasks."""

    norm: _Norm
    scale: Trained
    shift: Trained


def _norm(norm: nn.BatchNorm1d, tasks: int) -> _Norm:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    mean = norm.running_mean.expand(tasks, 1, -1).clone()
    return _Norm(mean, norm.running_var.expand(tasks, 1, -1).clone(), norm.momentum, norm.eps)


def _hidden(norm: nn.BatchNorm1d, tasks: int) -> _Hidden:
    scale, shift = (start_sgd(p.expand(tasks, 1, -1)) for p in (norm.weight, norm.bias))
    return _Hidden(_norm(norm, tasks), scale, shift)


def _train(
    centred: tuple[Tensor, Tensor],  # (T, S, m), (T, S, S)
    mean: tuple[Tensor, Tensor],  # (T, 1, m), (T, 1, S)
    a: Trained,
    hidden_g: _Hidden,
    W2: Trained,
    last: _Norm,
    W3: Trained,
    hidden_h: _Hidden,
    W4: Trained,
    targets: Tensor,
    temperature: float,
    left: list[float],
) -> None:
    """Take a step for each factor in ``left``, that of W₀ before the step."""
    zero = torch.zeros_like(hidden_h.norm.mean)  # (T, 1, m)
    for remaining in left:
        h1 = torch.baddbmm(centred[0], centred[1], a.value, beta=remaining)  # (T, S, m), centred
        mean1 = torch.baddbmm(mean[0], mean[1], a.value, beta=remaining)  # (T, 1, m)
        a1, over_sigma1 = _hidden_forward(hidden_g, h1, mean1)
        u, over_sigma2 = _norm_forward(last, _transposed_product(W2.value, a1))  # (T, S, d)
        h3 = u @ W3.value  # (T, S, m)
        a3, over_sigma3 = _hidden_forward(hidden_h, h3, zero)
        v = _transposed_product(W4.value, a3)  # (T, S, d)

        dv, du = _contrast_gradients(v, u, targets, temperature)
        da3 = dv @ W4.value
        step_product(W4, dv, a3)
        dh3 = _hidden_backward(hidden_h, da3, h3, a3, over_sigma3)
        du += _transposed_product(W3.value, dh3)
        step_product(W3, u, dh3)
        dh2 = _norm_backward(du, u, over_sigma2)
        da1 = dh2 @ W2.value
        step_product(W2, dh2, a1)
        step(a, _hidden_backward(hidden_g, da1, h1, a1, over_sigma1))


def _transposed_product(W: Tensor, a: Tensor) -> Tensor:
    """Return a Wᵀ (T, S, d) of W (T, d, m) and a (T, S, m), computed as (W aᵀ)ᵀ: faster."""
    return (W @ a.mT).mT


def _observe(norm: _Norm, mean: Tensor, centred: Tensor) -> Tensor:
    """Update the running statistics; return 1/σ (T, 1, n) of centred values (T, S, n)."""
    S = centred.shape[1]
    squares = (centred * centred).sum(dim=1, keepdim=True)  # (T, 1, n)
    norm.mean.lerp_(mean, norm.momentum)
    norm.var.lerp_(squares / (S - 1), norm.momentum)
    return (squares / S + norm.eps).rsqrt_()


def _norm_forward(norm: _Norm, h: Tensor) -> tuple[Tensor, Tensor]:  # u (T, S, n), 1/σ
    mean = h.mean(dim=1, keepdim=True)
    h = h - mean
    over_sigma = _observe(norm, mean, h)  # (T, 1, n)
    return h * over_sigma, over_sigma


def _norm_backward(du: Tensor, u: Tensor, over_sigma: Tensor) -> Tensor:  # (T, S, n)
    along = (du * u).mean(dim=1, keepdim=True)
    return (du - du.mean(dim=1, keepdim=True) - u * along) * over_sigma


def _normalise(norm: _Norm, h: Tensor) -> Tensor:
    """Normalise (T, any, n) with the running statistics."""
    return (h - norm.mean) * (norm.var + norm.eps).rsqrt()


def _hidden_forward(layer: _Hidden, h: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Return activations and 1/σ of centred inputs (T, S, m) and the mean (T, 1, m) they had."""
    over_sigma = _observe(layer.norm, mean, h)  # (T, 1, m)
    factor = layer.scale.value * over_sigma
    return torch.addcmul(layer.shift.value, h, factor).relu_(), over_sigma


def _hidden_backward(
    layer: _Hidden, da: Tensor, h: Tensor, a: Tensor, over_sigma: Tensor
) -> Tensor:
    """Return the gradient of h (T, S, m), up to a part common to all S; train scale and shift."""
    dy: Tensor = torch.ops.aten.threshold_backward(da, a, 0)  # ReLU
    shift = dy.sum(dim=1, keepdim=True)  # (T, 1, m)
    scale = (dy * h).sum(dim=1, keepdim=True).mul_(over_sigma)  # (T, 1, m)
    factor = layer.scale.value * over_sigma
    dh = dy.addcmul_(h, scale * over_sigma, value=-1.0 / dy.shape[1]).mul_(factor)
    step(layer.scale, scale)
    step(layer.shift, shift)
    return dh


def _infer(layer: _Hidden, h: Tensor) -> Tensor:
    """Apply the layer to (T, any, m) with the running statistics."""
    y = _normalise(layer.norm, h)
    return torch.addcmul(layer.shift.value, y, layer.scale.value).relu_()


def _contrast_gradients(
    v: Tensor, u: Tensor, targets: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Return the gradients of Eq. (1) with respect to v and u (T, S, d), which it normalises.

    ``targets`` (T, S, S) is A' with rows that sum to one.
    """
    q, q_length = _unit(v)
    z, z_length = _unit(u)
    S = targets.shape[1]
    dlogits = ((q @ z.mT / temperature).softmax(dim=2) - targets) / (S * temperature)
    dq, dz = dlogits @ z, dlogits.mT @ q  # (T, S, d)
    dv = (dq - q * (q * dq).sum(dim=2, keepdim=True)) / q_length
    du = (dz - z * (z * dz).sum(dim=2, keepdim=True)) / z_length
    return dv, du


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:  # (T, S, d), and the lengths (T, S, 1)
    length = torch.linalg.vector_norm(vectors, dim=2, keepdim=True).clamp_min_(1e-12)
    return vectors / length, length
