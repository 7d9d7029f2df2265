"""The training step as one would write it first: the yardstick that `psco bench` divides by.

The arithmetic is that of `psco.methods.psco`, and a test holds the losses of both together. Only
the way there differs, and all of it is what tutorials and published code do:

- views are made image by image with Pillow, in a DataLoader with two workers;
- images and weights stay in torch's default memory format (NCHW);
- Sinkhorn's rounds divide the whole matrix by its column sums, then by its row sums;
- the moving average is a loop over the parameters;
- positives are a matrix, logits are concatenated, and the queue is cloned before it is read.

It is meant to be plain, not bad: nothing in here is slower than what a first version would be.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Generator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.speed.inputs import Case, invent_images
from psco.data import ImageSet
from psco.errors import InputError
from psco.networks import ConvNet
from psco.recipes.build import build_method
from psco.recipes.recipe import ImageSettings, Recipe

_WORKERS = 2
_ATTEMPTS = 10


class PillowViews(Dataset[tuple[Tensor, Tensor]]):
    """Two random views of every image, one image at a time: crop, flip, normalise.

    Parameters
    ----------
    images
        The data set.
    image
        Side, mean and deviation of a view.
    scale, ratio
        Of the random resized crop, as in `psco.views.Crop`.
    """

    def __init__(
        self,
        images: ImageSet,
        image: ImageSettings,
        scale: tuple[float, float],
        ratio: tuple[float, float],
    ) -> None:
        self.images, self.image, self.scale, self.ratio = images, image, scale, ratio
        self.mean = torch.tensor(image.mean)[:, None, None]
        self.std = torch.tensor(image.std)[:, None, None]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        pixels = self.images.images[index]  # (H, W, C)
        picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        return self.view(picture), self.view(picture)

    def view(self, picture: Image.Image) -> Tensor:
        """Draw one view, (C, size, size)."""
        left, top, width, height = self.box(*picture.size)
        picture = picture.crop((left, top, left + width, top + height))
        size = (self.image.size, self.image.size)
        picture = picture.resize(size, Image.Resampling.BICUBIC)
        if torch.rand(1).item() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(picture)).float() / 255
        pixels = pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1).contiguous()
        return (pixels - self.mean) / self.std

    def box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Draw a box as random resized crops have it: left, top, width, height."""
        for _ in range(_ATTEMPTS):
            area = width * height * torch.empty(1).uniform_(*self.scale).item()
            low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
            aspect = math.exp(torch.empty(1).uniform_(low, high).item())
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left = int(torch.randint(0, width - w + 1, (1,)).item())
                top = int(torch.randint(0, height - h + 1, (1,)).item())
                return left, top, w, h
        return 0, 0, width, height


class NaivePsCo(nn.Module):
    """Algorithm 1 with the defaults of `psco.methods.psco.PsCo`, line by line.

    Parameters
    ----------
    backbone, projector, predictor
        f, g and h.
    queue
        (M, d) keys to start with.
    shots, momentum, temperature, moco_temperature, epsilon, iterations
        K, m, τ_PsCo, τ_MoCo, and ε and rounds of Sinkhorn.
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
        """Give L_PsCo and L_MoCo of a mini-batch (N, C, H, W), then remember its keys."""
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
        """Run Sinkhorn's rounds on (N, M) similarities, the plan being the matrix itself."""
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
        """Move the momentum network, parameter by parameter; buffers are copied."""
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
                f"the naive queue of {len(self.queue)} keys takes batches that divide it, "
                f"not {len(keys)}"
            )
        self.queue[self.pointer : self.pointer + len(keys)] = keys
        self.pointer = (self.pointer + len(keys)) % len(self.queue)


def naive_twin(method: Any) -> NaivePsCo:
    """Copy weights, queue and settings of a `psco.methods.psco.PsCo` into a naive one."""
    f, g, h = (copy.deepcopy(m) for m in (method.backbone, method.projector, method.predictor))
    if isinstance(f, ConvNet):
        f = nn.Sequential(*f)  # its layers, one after the other
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


class NaiveTrainer:
    """The naive run, going on for a few steps whenever it is told to.

    Parameters
    ----------
    case
        The setting: its views must be crop and flip, the method `psco`.
    """

    def __init__(self, case: Case) -> None:
        recipe: Recipe = case.settled()
        image, train = recipe.image, recipe.train
        images = invent_images(case.images, image.source_size, image.channels)
        crop = recipe.views.view_a["crop"]
        views = PillowViews(images, image, tuple(crop["scale"]), tuple(crop["ratio"]))
        torch.manual_seed(train.seed)
        self.method = naive_twin(build_method(recipe))
        self.loader = DataLoader(
            views, batch_size=train.batch_size, shuffle=True, drop_last=True, num_workers=_WORKERS
        )
        self.optimizer = torch.optim.SGD(
            [p for p in self.method.parameters() if p.requires_grad],
            lr=train.learning_rate,
            momentum=train.sgd_momentum,
            weight_decay=train.weight_decay,
        )
        self.batch_size = train.batch_size

    def seconds(self, steps: int, warm_up: int) -> float:
        """Train for some steps; give the mean seconds of one, after the warm-up.

        The workers start with the call and end with it, so that none of them prepares batches
        while another side is measured; the warm-up lets them get as far ahead as they ever are.
        """
        batches = self._batches()
        for _ in range(warm_up):
            self._step(*next(batches))
        begin = time.perf_counter()
        for _ in range(steps):
            self._step(*next(batches))
        seconds = (time.perf_counter() - begin) / steps
        batches.close()
        return seconds

    def _step(self, view_a: Tensor, view_b: Tensor) -> float:
        psco, moco = self.method.loss(view_a, view_b)
        loss = psco + moco
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()

    def _batches(self) -> Generator[Any, None, None]:
        while True:
            yield from self.loader
