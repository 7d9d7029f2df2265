"""An energy-based prior over latents that couples them with symbols (Pang and Wu, ICML 2021).

p(y, z) is proportional to exp(f(z)_y) N(z; 0, I) for a symbol y and a latent z, with an MLP f. Then
p(z) is proportional to exp(F(z)) N(z; 0, I), where F is the log-sum-exp of f over the symbols, and
p(y | z) is the softmax of f(z). A tanh bounds f. Functions take the weights of B priors side by
side.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.2  # of the leaky ReLUs
BOUND = 10.0  # of f(z); without one, encoder and prior drive F up together without end
Weights = list[Tensor]  # (B, out, in) and (B, 1, out) of each layer in turn


class LatentEnergy(nn.Module):
    """The MLP f with two hidden layers.

    Parameters
    ----------
    latent, symbols
        Lengths of z and of f(z).
    hidden
        Units of the hidden layers.
    """

    def __init__(self, latent: int, symbols: int, hidden: int = 200) -> None:
        super().__init__()
        sizes = (latent, hidden, hidden, symbols)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def weights(self, priors: int) -> Weights:
        """Return the weights for a number of priors, all the same; gradients reach the layers."""
        found = []
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            found += [layer.weight.expand(priors, -1, -1), layer.bias.expand(priors, 1, -1)]
        return found


def hidden_layers(weights: Weights, z: Tensor) -> list[Tensor]:
    """Return the activations (B, n, hidden) of both hidden layers for latents (B, n, d)."""
    W1, b1, W2, b2 = weights[:4]
    first = F.leaky_relu(torch.baddbmm(b1, z, W1.mT), SLOPE)
    return [first, F.leaky_relu(torch.baddbmm(b2, first, W2.mT), SLOPE)]


def symbol_logits(weights: Weights, z: Tensor) -> Tensor:
    """Return f(z) (B, n, symbols) of latents (B, n, d)."""
    return _last_layer(weights, hidden_layers(weights, z)[1])


def score(weights: Weights, z: Tensor) -> Tensor:
    """Return the gradient of log p(z) (B, n, d), that of F(z) - |z|²/2, without autograd."""
    W1, _, W2, _, W3, _ = weights
    first, second = hidden_layers(weights, z)
    logits = _last_layer(weights, second)
    upstream = (logits.softmax(dim=2) * (1 - (logits / BOUND).square())) @ W3
    for activation, W in ((second, W2), (first, W1)):
        upstream = torch.where(activation > 0, upstream, SLOPE * upstream) @ W
    return upstream - z


def mutual_information(logits: Tensor) -> Tensor:
    """Return H(mean p(y | z)) - mean H(p(y | z)) in nats, (B,), of f(z) (B, n, symbols).

    It is largest, log(symbols), if every latent has one certain symbol and all are equally common.
    """
    log_p = logits.log_softmax(dim=2)
    conditional = -(log_p.exp() * log_p).sum(dim=2).mean(dim=1)
    log_mean = log_p.logsumexp(dim=1) - math.log(logits.shape[1])
    return -(log_mean.exp() * log_mean).sum(dim=1) - conditional


def _last_layer(weights: Weights, hidden: Tensor) -> Tensor:  # (B, n, hidden) -> (B, n, symbols)
    W3, b3 = weights[4:]
    return BOUND * (torch.baddbmm(b3, hidden, W3.mT) / BOUND).tanh()
