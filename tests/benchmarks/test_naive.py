"""The naive step computes the same as the real one, only more slowly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from steps import run_loss

from benchmarks.speed.naive import naive_copy
from benchmarks.speed.naive_trainer import NaiveTrainer, PillowViews
from benchmarks.speed.settings import QUICK
from benchmarks.timing.cases import synthetic_images
from psco.errors import InputError
from psco.ops.crop import crop_resize
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe

SMALL = ("backbone.width=16", "heads={hidden: 64, out: 32}", "method.queue_size=128")


def make_method(*overrides: str) -> torch.nn.Module:
    torch.manual_seed(0)
    recipe = load_recipe("omniglot", [*SMALL, *overrides])
    return build_method(recipe).to(memory_format=torch.channels_last)


def trained(parameters) -> torch.optim.SGD:
    chosen = [p for p in parameters if p.requires_grad]
    return torch.optim.SGD(chosen, lr=0.03, momentum=0.9, weight_decay=5e-4)


@pytest.mark.parametrize("shots", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
def test_naive_losses_equal_those_of_the_method_over_several_steps(shots, dtype):
    # In double precision, since rounding may decide which of two keys is selected; and in single
    # precision at a width that the kernels support, so that they are compared too.
    wide = ["backbone.width=32"] if dtype == torch.float32 else []
    method = make_method(f"method.shots={shots}", *wide).to(dtype)
    naive = naive_copy(method)
    optimisers = trained(method.parameters()), trained(naive.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):  # twice around the queue
        x = torch.randn(64, 1, 28, 28, generator=generator).to(dtype)
        noise = torch.randn(2, *x.shape, generator=generator).to(dtype)
        view_a, view_b = x + 0.3 * noise[0], x + 0.3 * noise[1]
        for optimiser in optimisers:
            optimiser.zero_grad()
        real = run_loss(method, view_a, view_b)
        real["total"].backward()
        psco, moco = naive.loss(view_a, view_b)
        (psco + moco).backward()
        for optimiser in optimisers:
            optimiser.step()
        assert psco.item() == pytest.approx(real["psco"].item(), abs=1e-4)
        assert moco.item() == pytest.approx(real["moco"].item(), abs=1e-4)
    assert torch.allclose(naive.queue, method.queue.keys, atol=1e-3)


def test_naive_crops_equal_the_batched_ones():
    images = synthetic_images(8, 105, 1)
    recipe = load_recipe("omniglot")
    views = PillowViews(images, recipe.image, (0.2, 1.0), (3 / 4, 4 / 3))
    pixels = images.images[np.arange(1)]
    torch.manual_seed(3)
    left, top, width, height = views.box(105, 105)
    box = torch.tensor([[top, left, height, width]])
    batched = crop_resize(torch.from_numpy(pixels).permute(0, 3, 1, 2), box, 28, "bicubic")[0]
    torch.manual_seed(3)
    view = views.view(Image.fromarray(pixels[0, :, :, 0]))
    unit = view * views.std + views.mean
    unflipped = min((unit, unit.flip(2)), key=lambda v: float((v - batched).abs().sum()))
    assert (unflipped - batched).abs().max() < 2 / 255  # Pillow rounds to eight bits, twice


def test_naive_boxes_lie_in_the_image_and_fill_the_range_of_areas():
    views = PillowViews(
        synthetic_images(4, 105, 1), load_recipe("omniglot").image, (0.2, 1), (0.75, 4 / 3)
    )
    torch.manual_seed(0)
    boxes = np.array([views.box(105, 105) for _ in range(300)])
    left, top, width, height = boxes.T
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (left + width <= 105).all()
    assert (top + height <= 105).all()
    fraction = width * height / 105**2
    assert 0.15 < fraction.min() < 0.25
    assert 0.85 < fraction.max() <= 1


def test_a_batch_size_that_does_not_divide_the_queue_is_an_error():
    naive = naive_copy(make_method())
    with pytest.raises(InputError, match="must divide the naive queue of 128 keys, got 48"):
        naive.loss(*torch.randn(2, 48, 1, 28, 28))


def test_the_naive_run_trains_and_ends_its_workers():
    trainer = NaiveTrainer(QUICK.base)
    before = [p.clone() for p in trainer.method.online.parameters()]
    assert trainer.seconds(2, warm_up=1) > 0
    after = list(trainer.method.online.parameters())
    assert all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not torch.multiprocessing.active_children()
