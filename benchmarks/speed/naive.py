"""The training step as a first version would have it, which `make bench` compares with.

The arithmetic is that of `psco.methods.psco`; a test keeps the losses of both equal. What differs
is how it is computed, as tutorials and published code do it:

- weights and images stay in torch's default memory format (NCHW);
- Sinkhorn's rounds divide the whole matrix by its column sums, then by its row sums;
- the moving average is a loop over the parameters;
- positives are a matrix, logits are concatenated, and the queue is cloned before it is read.

It is plain, not deliberately slow. `benchmarks.speed.naive_trainer` trains it.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError
from psco.networks import ConvNet


class NaivePsCo(nn.Module):
    """Algorithm 1 with the defaults of `psco.methods.psco.PsCo`, line by line.

    Parameters
    ----------
    backbone, projector, predictor
        f, g and h.
    queue
        (M, d) initial keys.
    shots, momentum, temperature, moco_temperature, epsilon, iterations
        K, m, τ_PsCo, τ_MoCo, and Sinkhorn's ε and number of rounds.
    """

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module,
        queue: Tensor,
        shots: int,
        momentum: float,
        temperature: float,
        moco_temperature: float,
        epsilon: float,
        iterations: int,
    ) -> None:
        super().__init__()
        self.online = nn.ModuleList([backbone, projector])
        self.predictor = predictor
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.register_buffer("queue", queue.clone())
        self.pointer = 0
        self.shots, self.momentum = shots, momentum
        self.temperature, self.moco_temperature = temperature, moco_temperature
        self.epsilon, self.iterations = epsilon, iterations

    queue: Tensor

    def loss(self, view_a: Tensor, view_b: Tensor) -> tuple[Tensor, Tensor]:
        """Return L_PsCo and L_MoCo of a mini-batch (N, C, H, W), and push its keys."""
        self.update_target()
        q = F.normalize(self.predictor(self.online[1](self.online[0](view_a))), dim=1)
        with torch.no_grad():
            z = F.normalize(self.target[1](self.target[0](view_b)), dim=1)
            queue = self.queue.clone().detach()
            plan = self.assign(torch.mm(z, queue.t()))
            _, shots = torch.topk(plan, self.shots, dim=1)
            support = queue[shots.reshape(-1)]  # (NK, d)
            pseudo_labels = torch.arange(len(q)).repeat_interleave(self.shots)
            positives = (torch.arange(len(q))[:, None] == pseudo_labels[None, :]).float()

        log_p = F.log_softmax(torch.mm(q, support.t()) / self.temperature, dim=1)
        psco = -((log_p * positives).sum(dim=1) / positives.sum(dim=1)).mean()

        positive = torch.einsum("nd,nd->n", q, z).unsqueeze(1)
        negative = torch.einsum("nd,md->nm", q, queue)
        logits = torch.cat([positive, negative], dim=1) / self.moco_temperature
        moco = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))

        self.enqueue(z)
        return psco, moco

    @torch.no_grad()
    def assign(self, similarity: Tensor) -> Tensor:
        """Return the transport plan of (N, M) similarities by rewriting the whole matrix."""
        plan = torch.exp(similarity / self.epsilon)
        plan /= torch.sum(plan)
        for _ in range(self.iterations):
            plan /= torch.sum(plan, dim=0, keepdim=True)
            plan /= plan.shape[1]
            plan /= torch.sum(plan, dim=1, keepdim=True)
            plan /= plan.shape[0]
        return plan

    @torch.no_grad()
    def update_target(self) -> None:
        """Update the momentum network parameter by parameter; copy the buffers."""
        m = self.momentum
        for target, online in zip(self.target.parameters(), self.online.parameters(), strict=True):
            target.copy_(target * m + online * (1 - m))
        for mine, theirs in zip(self.target.buffers(), self.online.buffers(), strict=True):
            mine.copy_(theirs)

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        """Replace the oldest keys.

        Raises
        ------
        InputError
            If the queue does not hold a whole number of batches.
        """
        if len(self.queue) % len(keys):
            raise InputError(
                f"the batch size must divide the naive queue of {len(self.queue)} keys, "
                f"got {len(keys)}"
            )
        self.queue[self.pointer : self.pointer + len(keys)] = keys
        self.pointer = (self.pointer + len(keys)) % len(self.queue)


def naive_copy(method: Any) -> NaivePsCo:
    """Return a naive method with the weights, queue and settings of a `psco.methods.psco.PsCo`."""
    f, g, h = (copy.deepcopy(m) for m in (method.backbone, method.projector, method.predictor))
    if isinstance(f, ConvNet):
        f = nn.Sequential(*f)  # layer by layer, nothing fused
    return NaivePsCo(
        f,
        g,
        h,
        method.queue.keys,
        method.shots,
        method.momentum,
        method.temperature,
        method.moco_temperature,
        method.sinkhorn_epsilon,
        method.sinkhorn_iterations,
    )
