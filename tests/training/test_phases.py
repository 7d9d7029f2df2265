"""What changes during a run: size of the views, frozen blocks; and AdamW."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import psco
from psco.errors import InputError
from psco.recipes.build import build_method, build_views
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import load_resume
from psco.training.feed import Feed
from psco.training.loop import Loop
from psco.training.optim import build_optimizer
from psco.training.trainer import Trainer

EVERYTHING = [
    "image.source_size=20",
    "views.count=3",
    "views.shared_flip=0.5",
    "views.view_a={crop: {}, shift: {}}",
    "method={name: psco, shots: 2, queue_size: 50, mixed_negatives: 5}",
    "train={steps: 12, batch_size: 12, optimizer: adamw, learning_rate: 0.002, log_steps: 1, "
    "small_size: 12, small_until: 0.5, freeze_blocks: 2, freeze_from: 0.7, average_last: 0.2}",
]


@pytest.fixture
def staged(tiny):
    return [s for s in tiny if not s.startswith(("method", "train"))] + EVERYTHING


def trainer(pictures, out, overrides, **options) -> Trainer:
    return Trainer(pictures, out, "glyphs", overrides, progress=False, **options)


def state(folder) -> dict[str, torch.Tensor]:
    return load_resume(folder)["method"]


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def make_loop(pictures, tmp_path, overrides) -> Loop:
    recipe = load_recipe("glyphs", overrides)
    torch.manual_seed(0)
    feed = Feed(psco.ImageSet(pictures), recipe.train.batch_size, 0)
    return Loop(build_method(recipe), build_views(recipe), feed, recipe, tmp_path / "unused")


def test_views_are_small_first_and_blocks_are_frozen_last(pictures, tmp_path, staged):
    loop = make_loop(pictures, tmp_path, staged)
    seen, gradients = [], []
    backbone = loop.method.module.backbone
    backbone.register_forward_pre_hook(lambda _, x: seen.append(tuple(x[0].shape)))
    step = loop.optimizer.step

    def keep_gradients() -> None:
        gradients.append([p.grad is not None for p in backbone.parameters()])
        step()

    loop.optimizer.step = keep_gradients
    before = []
    batches = loop.feed.batches(0)
    for _ in range(12):
        before.append([p.detach().clone() for p in backbone.parameters()])
        loop._take_step(batches)
    assert seen == [(24, 1, 12, 12)] * 6 + [(24, 1, 16, 16)] * 6
    frozen = [False] * 6 + [True] * 6  # two blocks of a filter, a scale and a shift
    assert gradients == [[True] * 12] * 9 + [frozen] * 3  # 9 of 12 is the first step past 0.7
    for late in (10, 11):
        changed = [not torch.equal(*p) for p in zip(before[9], before[late], strict=True)]
        assert changed == frozen


def test_a_run_stopped_in_every_stage_resumes_to_the_same_bits(pictures, tmp_path, staged):
    trainer(pictures, tmp_path / "whole", staged).run()

    def stop(row) -> None:
        if row["step"] in (3, 6, 7, 10) and row["step"] > stopped[-1]:
            stopped.append(row["step"])
            raise KeyboardInterrupt

    stopped = [0]
    options = {"loggers": [stop], "checkpoint_steps": 1, "resume": True}
    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            trainer(pictures, tmp_path / "parts", staged, **options).run()
    trainer(pictures, tmp_path / "parts", staged, **options).run()
    assert stopped == [0, 3, 6, 7, 10]
    assert same(state(tmp_path / "whole"), state(tmp_path / "parts"))


def test_the_gauge_measures_at_full_size_and_changes_nothing(pictures, tmp_path, staged):
    run = trainer(pictures, tmp_path / "with", staged).run()
    trainer(pictures, tmp_path / "without", staged, measure_quality=False).run()
    assert same(state(tmp_path / "with"), state(tmp_path / "without"))
    assert 0 <= run.metrics[-1]["retrieval"] <= 1


def test_a_prolonged_run_goes_back_to_the_stage_of_its_new_length(pictures, tmp_path, staged):
    trainer(pictures, tmp_path / "run", [*staged, "train.average_last=0"]).run()
    longer = [*staged, "train.average_last=0", "train.steps=40"]
    prolonged = trainer(pictures, tmp_path / "run", longer, resume=True)
    prolonged.stop = lambda: prolonged.loop is not None and prolonged.loop.step >= 14
    prolonged.run()
    assert prolonged.loop is not None
    parameters = prolonged.loop.method.module.backbone.parameters()
    assert all(p.requires_grad for p in parameters)


def test_adamw_takes_the_steps_of_its_paper():
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))
    module = nn.ParameterList([weight])
    changes = ["train.optimizer=adamw", "train.weight_decay=0.1"]
    train = load_recipe("glyphs", changes).train
    optimizer = build_optimizer(module, train, 0.01)
    w, m, v = weight.detach().clone(), torch.zeros(2), torch.zeros(2)
    for t in range(1, 6):
        gradient = torch.tensor([0.3 * t, -1.0])
        weight.grad = gradient.clone()
        optimizer.step()
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        update = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        w = w - 0.01 * 0.1 * w - 0.01 * update
        torch.testing.assert_close(weight.detach(), w)


REFUSED = [
    (["train.small_size=16"], r"small_size must be less than image\.size, 16, got 16"),
    (["train.small_size=24", "image.size=40"], r"has 8 features at 24 px and 32 at 40 px"),
    (["train.freeze_blocks=4"], r"conv4 has 4 blocks; freeze fewer"),
    (["train.freeze_blocks=1", "backbone={name: resnet18}"], r"requires backbone conv4 or conv5"),
    (
        ["method={name: moco, queue_size: 50}", "views.count=3"],
        r"must be 2 for method .moco.",
    ),
    (["method={name: protonets, ways: 2}", "train.small_size=12"], r"does not train on two views"),
    (["views.count=1"], r"views\.count: input should be greater than or equal to 2"),
    (["train.freeze=backbone", "views.count=4"], r"train\.freeze=backbone takes no views\.count"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_what_cannot_be_staged_is_refused_before_anything_is_written(
    pictures, tmp_path, tiny, changes, message
):
    labels = np.arange(60) % 6
    data = psco.ImageSet(pictures, labels, tuple("abcdef"))
    with pytest.raises(InputError, match=message):
        trainer(data, tmp_path / "run", [*tiny, *changes]).run()
    assert not (tmp_path / "run").exists()


def test_functions_as_views_can_be_several_but_not_small(pictures, tmp_path, tiny):
    views = (lambda x: x[:, :, :16, :16].float(), lambda x: x[:, :, 2:18, 2:18].float())
    run = trainer(pictures, tmp_path / "run", [*tiny, "views.count=3"], views=views).run()
    assert run.finished
    with pytest.raises(InputError, match="functions have their own size"):
        trainer(pictures, tmp_path / "small", [*tiny, "train.small_size=12"], views=views).run()


def test_frozen_blocks_need_one_device(pictures, tmp_path, tiny):
    with pytest.raises(InputError, match="trains on one device only, not on 2 ranks"):
        psco.training.phases.check_phases(
            build_method(recipe := load_recipe("glyphs", [*tiny, "train.freeze_blocks=1"])),
            recipe,
            False,
            2,
        )
