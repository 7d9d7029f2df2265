"""Adapting copies of the usual heads g and h for many tasks at once, with gradients by hand.

    g    x (T, S, width) - W1 - BatchNorm, ReLU - W2 - BatchNorm - u (T, S, d)
    h    u - W3 - BatchNorm, ReLU - W4 - v (T, S, d)

Four things make this several times faster than one task after the other with autograd:

- products of all tasks are one call, and SGD is a pass less over the weights (see `Trained`);
- the inputs x never change. W1 is its initial value, which all tasks share, plus a combination of
  the S supports of the task; training it costs products with their S x S kernel;
- BatchNorm centres over the supports. The outputs of W1 come centred if x is, those of W3 do
  anyway, as u is, and what a gradient has in common for all supports never reaches a weight;
- a class's share in Eq. (1) is the same in every step.
"""

from __future__ import annotations

from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.rules.rule import Heads
from psco.rules.sgd import Trained, remains

Layer = TypeVar("Layer", bound=nn.Module)


def are_usual(heads: Heads) -> bool:
    """Say whether the heads have the form that `psco.networks` gives them."""
    hidden = [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Linear]
    forms = {heads.projector: [*hidden, nn.BatchNorm1d], heads.predictor: hidden}
    if any(
        type(head) is not nn.Sequential or [type(layer) for layer in head] != form
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


@torch.no_grad()
def adapt_together(
    x: Tensor, labels: Tensor, xq: Tensor, heads: Heads, steps: int
) -> tuple[Tensor, Tensor]:
    """Adapt copies of heads for which `are_usual` holds, and apply them.

    Parameters
    ----------
    x, labels, xq
        (T, S, width) features of the supports, (T, S) their labels, (T, Q, width) features of the
        queries; S > 1.
    heads
        Left as they are.
    steps
        Steps of SGD.

    Returns
    -------
    tuple
        (T, S, d) supports and (T, Q, d) queries as their adapted representations of unit length.
    """
    T = len(x)
    linear1, linear2 = _layers(heads.projector, nn.Linear)
    linear3, linear4 = _layers(heads.predictor, nn.Linear)
    norm1, norm2 = _layers(heads.projector, nn.BatchNorm1d)
    (norm3,) = _layers(heads.predictor, nn.BatchNorm1d)
    W1 = _FirstLayer(linear1.weight, x)
    W2 = Trained(linear2.weight.expand(T, -1, -1))  # (T, d, m)
    W3 = Trained(linear3.weight.T.expand(T, -1, -1))  # (T, d, m), transposed: the faster layout
    W4 = Trained(linear4.weight.expand(T, -1, -1))  # (T, d, m)
    hidden_g, last, hidden_h = _Hidden(norm1, T), _Norm(norm2, T), _Hidden(norm3, T)

    same = (labels[:, :, None] == labels[:, None]).to(x.dtype)  # (T, S, S), the paper's A'
    share = same / same.sum(dim=2, keepdim=True)
    mean = x.mean(dim=1, keepdim=True)  # (T, 1, width)
    points, middle = W1.products(x - mean), W1.products(mean)
    zero = torch.zeros_like(hidden_h.norm.mean)  # (T, 1, m)
    left = remains(steps)
    for step in range(steps):
        a1 = hidden_g.forward(W1.outputs(points, left[step]), W1.outputs(middle, left[step]))
        u = last.forward(_transposed_product(W2.value, a1))  # (T, S, d)
        a3 = hidden_h.forward(u @ W3.value, zero)
        v = _transposed_product(W4.value, a3)  # (T, S, d)

        dv, du = _contrast_gradients(v, u, share, heads.temperature)
        da3 = dv @ W4.value
        W4.step_product(dv, a3)
        dh3 = hidden_h.backward(da3)
        du += _transposed_product(W3.value, dh3)
        W3.step_product(u, dh3)
        dh2 = last.backward(du)
        da1 = dh2 @ W2.value
        W2.step_product(dh2, a1)
        W1.coefficients.step(hidden_g.backward(da1))

    def project(inputs: Tensor) -> Tensor:
        outputs = W1.outputs(W1.products(inputs), left[steps])  # (T, n, m)
        return last.normalise(hidden_g.infer(outputs) @ W2.value.mT)

    s, q = project(x), hidden_h.infer(project(xq) @ W3.value) @ W4.value.mT
    return F.normalize(s, dim=2), F.normalize(q, dim=2)


def _transposed_product(W: Tensor, a: Tensor) -> Tensor:
    """Give a Wᵀ (T, S, d) of (T, d, m) and (T, S, m); as (W aᵀ)ᵀ it is quicker."""
    return (W @ a.mT).mT


class _FirstLayer:
    """x W1ᵀ for W1 = left W₀ + aᵀ (x − mean), with W₀ (m, width) and coefficients a (T, S, m)."""

    def __init__(self, start: Tensor, x: Tensor) -> None:
        self.start = start
        self.basis = x - x.mean(dim=1, keepdim=True)  # (T, S, width)
        self.coefficients = Trained(x.new_zeros(*x.shape[:2], len(start)))  # (T, S, m)

    def products(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Multiply inputs (T, n, width) with W₀ and with the basis: (T, n, m) and (T, n, S)."""
        return inputs @ self.start.T, inputs @ self.basis.mT

    def outputs(self, products: tuple[Tensor, Tensor], left: float) -> Tensor:  # (T, n, m)
        return torch.baddbmm(*products, self.coefficients.value, beta=left)


class _Norm:
    """BatchNorm without affine map: n channels of T tasks, normalised over S supports."""

    def __init__(self, norm: nn.BatchNorm1d, tasks: int) -> None:
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert norm.momentum is not None
        self.mean = norm.running_mean.expand(tasks, 1, -1).clone()  # (T, 1, n)
        self.var = norm.running_var.expand(tasks, 1, -1).clone()  # (T, 1, n)
        self.momentum, self.eps = norm.momentum, norm.eps

    def observe(self, mean: Tensor, centred: Tensor) -> Tensor:
        """Update the running statistics; give 1/σ (T, 1, n) of (T, S, n) centred values."""
        S = centred.shape[1]
        squares = (centred * centred).sum(dim=1, keepdim=True)  # (T, 1, n)
        self.mean.lerp_(mean, self.momentum)
        self.var.lerp_(squares / (S - 1), self.momentum)
        return (squares / S + self.eps).rsqrt_()

    def forward(self, h: Tensor) -> Tensor:  # (T, S, n) -> (T, S, n)
        mean = h.mean(dim=1, keepdim=True)
        h = h - mean
        self.over_sigma = self.observe(mean, h)  # (T, 1, n)
        self.u = h * self.over_sigma
        return self.u

    def backward(self, du: Tensor) -> Tensor:  # (T, S, n) -> (T, S, n)
        along = (du * self.u).mean(dim=1, keepdim=True)
        return (du - du.mean(dim=1, keepdim=True) - self.u * along) * self.over_sigma

    def normalise(self, h: Tensor) -> Tensor:
        """Normalise (T, any, n) with the running statistics."""
        return (h - self.mean) * (self.var + self.eps).rsqrt()


class _Hidden:
    """BatchNorm with scale and shift, then ReLU, of m hidden units of T tasks."""

    def __init__(self, norm: nn.BatchNorm1d, tasks: int) -> None:
        self.norm = _Norm(norm, tasks)
        self.scale = Trained(norm.weight.expand(tasks, 1, -1))  # (T, 1, m)
        self.shift = Trained(norm.bias.expand(tasks, 1, -1))  # (T, 1, m)

    def forward(self, h: Tensor, mean: Tensor) -> Tensor:
        """Take values (T, S, m) that are centred already, and the mean (T, 1, m) they had."""
        self.h, self.over_sigma = h, self.norm.observe(mean, h)
        factor = self.scale.value * self.over_sigma  # (T, 1, m)
        self.a = torch.addcmul(self.shift.value, h, factor).relu_()
        return self.a

    def backward(self, da: Tensor) -> Tensor:
        """Turn (T, S, m) into the gradient of h, but for a part common to all S; train."""
        dy: Tensor = torch.ops.aten.threshold_backward(da, self.a, 0)  # ReLU
        shift = dy.sum(dim=1, keepdim=True)  # (T, 1, m)
        scale = (dy * self.h).sum(dim=1, keepdim=True).mul_(self.over_sigma)  # (T, 1, m)
        factor = self.scale.value * self.over_sigma
        dh = dy.addcmul_(self.h, scale * self.over_sigma, value=-1 / dy.shape[1]).mul_(factor)
        self.scale.step(scale)
        self.shift.step(shift)
        return dh

    def infer(self, h: Tensor) -> Tensor:
        """Apply to (T, any, m) with the running statistics."""
        return torch.addcmul(self.shift.value, self.norm.normalise(h), self.scale.value).relu_()


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
