"""Adapting copies of the usual heads g and h for many tasks at once, with gradients by hand.

    g    x (T, S, width) - W1 - BatchNorm, ReLU - W2 - BatchNorm - u (T, S, d)
    h    u - W3 - BatchNorm, ReLU - W4 - v (T, S, d)

Five things make this several times faster than one task after the other with autograd:

- products of a few tasks are one call, and SGD is a pass less over the weights (see `trained`);
- the inputs x never change. W1 is its initial value, which all tasks share, plus a combination of
  the S supports of the task; training it costs products with their S x S kernel;
- BatchNorm centres over the supports. The outputs of W1 come centred if x is, those of W3 do
  anyway, as u is, and what a gradient has in common for all supports never reaches a weight;
- a class's share in Eq. (1) is the same in every step;
- the steps are compiled, and every core has its own tasks (``psco.evaluation.rules.parallel``).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.evaluation.rules.parallel import on_one_core_each
from psco.evaluation.rules.rule import Heads
from psco.evaluation.rules.sgd import Trained, remains, step, step_product, trained
from psco.networks.heads import Head
from psco.ops.script import compile_script

Layer = TypeVar("Layer", bound=nn.Module)

_TASKS_OF_A_CORE = 2  # at once; about 10 MB each for the heads of the paper
_TASKS_OF_ALL = 4  # at once, where a step is shared among the cores


def are_usual(heads: Heads) -> bool:
    """Say whether the heads have the form that `psco.networks` gives them."""
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
    """Adapt copies of heads for which `are_usual` holds, and apply them.

    Parameters
    ----------
    x, labels, xq
        (T, S, width) features of the supports, (T, S) their labels, (T, Q, width) features of the
        queries; T > 0, S > 1.
    heads
        Left as they are.
    steps
        Steps of SGD.

    Returns
    -------
    tuple
        (T, S, d) supports and (T, Q, d) queries as their adapted representations of unit length.
    """

    def adapt(part: slice) -> tuple[Tensor, Tensor]:
        return _adapt(x[part], labels[part], xq[part], heads, steps)

    compiled = isinstance(_compiled_training(), torch.jit.ScriptFunction)
    if x.device.type != "cpu":
        results = [adapt(slice(None))]
    elif compiled:
        # Fewer at once if there would not be some for every core.
        size = max(1, min(_TASKS_OF_A_CORE, len(x) // torch.get_num_threads()))
        results = on_one_core_each(adapt, _parts(len(x), size))
    else:
        results = [adapt(part) for part in _parts(len(x), _TASKS_OF_ALL)]
    supports, queries = zip(*results, strict=True)
    return torch.cat(supports), torch.cat(queries)


def _parts(count: int, size: int) -> list[slice]:
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
    W2 = trained(linear2.weight.expand(T, -1, -1))  # (T, d, m)
    W3 = trained(linear3.weight.T.expand(T, -1, -1))  # (T, d, m), transposed: the faster layout
    W4 = trained(linear4.weight.expand(T, -1, -1))  # (T, d, m)
    hidden_g, last, hidden_h = _hidden(norm1, T), _norm(norm2, T), _hidden(norm3, T)

    mean = x.mean(dim=1, keepdim=True)  # (T, 1, width)
    basis = x - mean  # (T, S, width)
    # W1 = left W₀ + aᵀ basis, with W₀ (m, width) and coefficients a.
    a = trained(x.new_zeros(*x.shape[:2], len(linear1.weight)))  # (T, S, m)

    def products(inputs: Tensor) -> tuple[Tensor, Tensor]:  # with W₀ (T, n, m), basis (T, n, S)
        return inputs @ linear1.weight.T, inputs @ basis.mT

    same = (labels[:, :, None] == labels[:, None]).to(x.dtype)  # (T, S, S), the paper's A'
    share = same / same.sum(dim=2, keepdim=True)
    left = remains(steps)
    train = _compiled_training()
    constants = share, heads.temperature, left[:steps]
    train(products(basis), products(mean), a, hidden_g, W2, last, W3, hidden_h, W4, *constants)

    def project(inputs: Tensor) -> Tensor:
        outputs = torch.baddbmm(*products(inputs), a.value, beta=left[steps])  # (T, n, m)
        return _normalise(last, _infer(hidden_g, outputs) @ W2.value.mT)

    s, q = project(x), _infer(hidden_h, project(xq) @ W3.value) @ W4.value.mT
    return F.normalize(s, dim=2), F.normalize(q, dim=2)


@cache
def _compiled_training() -> Any:
    return compile_script(_train)


# What follows is compiled: free functions, and tuples instead of objects with methods.


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
    scale, shift = (trained(p.expand(tasks, 1, -1)) for p in (norm.weight, norm.bias))
    return _Hidden(_norm(norm, tasks), scale, shift)


def _train(
    points: tuple[Tensor, Tensor],  # (T, S, m), (T, S, S)
    middle: tuple[Tensor, Tensor],  # (T, 1, m), (T, 1, S)
    a: Trained,
    hidden_g: _Hidden,
    W2: Trained,
    last: _Norm,
    W3: Trained,
    hidden_h: _Hidden,
    W4: Trained,
    share: Tensor,
    temperature: float,
    left: list[float],
) -> None:
    """Take a step for each factor in ``left``, what remains of W₀ at that step."""
    zero = torch.zeros_like(hidden_h.norm.mean)  # (T, 1, m)
    for remaining in left:
        h1 = torch.baddbmm(points[0], points[1], a.value, beta=remaining)  # (T, S, m), centred
        mean1 = torch.baddbmm(middle[0], middle[1], a.value, beta=remaining)  # (T, 1, m)
        a1, over_sigma1 = _hidden_forward(hidden_g, h1, mean1)
        u, over_sigma2 = _norm_forward(last, _transposed_product(W2.value, a1))  # (T, S, d)
        h3 = u @ W3.value  # (T, S, m)
        a3, over_sigma3 = _hidden_forward(hidden_h, h3, zero)
        v = _transposed_product(W4.value, a3)  # (T, S, d)

        dv, du = _contrast_gradients(v, u, share, temperature)
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
    """Give a Wᵀ (T, S, d) of (T, d, m) and (T, S, m); as (W aᵀ)ᵀ it is quicker."""
    return (W @ a.mT).mT


def _observe(norm: _Norm, mean: Tensor, centred: Tensor) -> Tensor:
    """Update the running statistics; give 1/σ (T, 1, n) of (T, S, n) centred values."""
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
    """Turn (T, S, m) that are centred already, and the mean they had, into activations and 1/σ."""
    over_sigma = _observe(layer.norm, mean, h)  # (T, 1, m)
    factor = layer.scale.value * over_sigma
    return torch.addcmul(layer.shift.value, h, factor).relu_(), over_sigma


def _hidden_backward(
    layer: _Hidden, da: Tensor, h: Tensor, a: Tensor, over_sigma: Tensor
) -> Tensor:
    """Turn (T, S, m) into the gradient of h, but for a part common to all S; train."""
    dy: Tensor = torch.ops.aten.threshold_backward(da, a, 0)  # ReLU
    shift = dy.sum(dim=1, keepdim=True)  # (T, 1, m)
    scale = (dy * h).sum(dim=1, keepdim=True).mul_(over_sigma)  # (T, 1, m)
    factor = layer.scale.value * over_sigma
    dh = dy.addcmul_(h, scale * over_sigma, value=-1.0 / dy.shape[1]).mul_(factor)
    step(layer.scale, scale)
    step(layer.shift, shift)
    return dh


def _infer(layer: _Hidden, h: Tensor) -> Tensor:
    """Apply to (T, any, m) with the running statistics."""
    y = _normalise(layer.norm, h)
    return torch.addcmul(layer.shift.value, y, layer.scale.value).relu_()


def _contrast_gradients(
    v: Tensor, u: Tensor, share: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Give the gradients of Eq. (1) by v and u (T, S, d), of unit length as queries and keys.

    ``share`` (T, S, S) is A' with rows that sum to one.
    """
    q, q_length = _unit(v)
    z, z_length = _unit(u)
    dlogits = ((q @ z.mT / temperature).softmax(dim=2) - share) / (share.shape[1] * temperature)
    dq, dz = dlogits @ z, dlogits.mT @ q  # (T, S, d)
    dv = (dq - q * (q * dq).sum(dim=2, keepdim=True)) / q_length
    du = (dz - z * (z * dz).sum(dim=2, keepdim=True)) / z_length
    return dv, du


def _unit(vectors: Tensor) -> tuple[Tensor, Tensor]:  # (T, S, d), and the lengths (T, S, 1)
    length = torch.linalg.vector_norm(vectors, dim=2, keepdim=True).clamp_min_(1e-12)
    return vectors / length, length
