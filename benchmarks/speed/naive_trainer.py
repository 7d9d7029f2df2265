"""The naive step in training, with per-image Pillow views from a DataLoader with two workers.

    python -m benchmarks.speed.naive_trainer [--steps 10] [--profile]

trains at the Omniglot recipe and prints images per second; with --profile also the costliest
operations of the training process.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Generator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from benchmarks.speed.naive import naive_copy
from benchmarks.speed.settings import QUICK
from benchmarks.speed.trainer import WARM_UP
from benchmarks.timing.cases import Case, synthetic_images
from psco.data import ImageSet
from psco.recipes.build import build_method
from psco.recipes.recipe import ImageSettings, Recipe

_WORKERS = 2
_ATTEMPTS = 10


class PillowViews(Dataset[tuple[Tensor, Tensor]]):
    """Two random views of each image, one image at a time: crop, flip, normalise.

    Parameters
    ----------
    images
        The data set.
    image
        Side, mean and standard deviation of a view.
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
        """Draw the box of a random resized crop: left, top, width, height."""
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


class NaiveTrainer:
    """The naive run, which continues for a few steps at a time.

    Parameters
    ----------
    case
        The setting. Its views must be crop and flip, its method `psco`.
    """

    def __init__(self, case: Case) -> None:
        recipe: Recipe = case.resolve()
        image, train = recipe.image, recipe.train
        images = synthetic_images(case.images, image.source_size, image.channels)
        crop = recipe.views.view_a["crop"]
        views = PillowViews(images, image, tuple(crop["scale"]), tuple(crop["ratio"]))
        torch.manual_seed(train.seed)
        self.method = naive_copy(build_method(recipe))
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
        """Train for some steps and return the mean seconds of one, after the warm-up.

        The DataLoader's workers start and end with the call, so that none prepares batches while
        another side is measured. During the warm-up they fill their queue.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--set", nargs="+", default=[], metavar="A=B", help="change the recipe")
    parser.add_argument("--profile", action="store_true", help="list the costliest operations")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to see that it runs")
    options = parser.parse_args()

    case = QUICK.base if options.quick else Case()
    trainer = NaiveTrainer(case.with_(*options.set))
    with torch.profiler.profile() if options.profile else nullcontext() as profile:
        seconds = trainer.seconds(options.steps, WARM_UP)
    if profile is not None:
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
    print(
        f"{trainer.batch_size / seconds:.0f} images/s, {1e3 * seconds:.0f} ms a step of "
        f"{trainer.batch_size} images, {torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()
