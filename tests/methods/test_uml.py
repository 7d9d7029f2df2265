"""UML against loops over tasks, queries and negatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from steps import run_loss

import psco
from psco.errors import InputError
from psco.evaluation.embed import Encoder
from psco.evaluation.evaluate import evaluate
from psco.methods.uml import UML, TaskHead, episode_logits, mixed_logits
from psco.networks import Networks
from psco.training.checkpoint import load_resume
from psco.training.trainer import Trainer


def make(**options: object) -> UML:
    torch.manual_seed(0)
    return UML(Networks(psco.conv4(1, 16, width=8), width=8), **{"ways": 3, "tasks": 5, **options})


def embeddings(rows: int = 12, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 7, generator=generator, dtype=torch.float64)


ROWS = torch.tensor([[[0, 2], [4, 6], [8, 10]], [[3, 1], [7, 5], [11, 9]]])  # (T, V, n), N = 4


def test_queries_are_compared_with_shots_of_unit_length():
    z = embeddings()
    found = episode_logits(z, ROWS)
    for t in range(2):
        for v in range(2):
            for i in range(2):
                for j in range(2):
                    q, c = z[ROWS[t, v + 1, i]], z[ROWS[t, 0, j]]
                    assert float(found[t, v, i, j]) == pytest.approx(float(q @ c / c.norm()))


def test_mixed_negatives_are_near_embeddings_of_other_images_moved_towards_the_query():
    z, part = embeddings().requires_grad_(), 0.5 * torch.rand(12, 3, dtype=torch.float64)
    found = mixed_logits(z, images=4, count=3, part=part)
    slow = torch.zeros(12, 3, dtype=torch.float64)
    for i in range(12):
        others = [j for j in range(12) if j % 4 != i % 4]
        nearest = sorted(others, key=lambda j: -float((z[i] @ z[j] / z[j].norm()).detach()))[:3]
        for place, (j, c) in enumerate(zip(nearest, part[i], strict=True)):
            mixed = (1 - c) * z[j] + c * z[i]
            slow[i, place] = z[i] @ mixed / mixed.norm()
    torch.testing.assert_close(found, slow)
    weight = torch.rand(12, 3, dtype=torch.float64)
    fast_gradient = torch.autograd.grad((found * weight).sum(), z)[0]
    torch.testing.assert_close(fast_gradient, torch.autograd.grad((slow * weight).sum(), z)[0])


def test_the_head_is_attention_over_the_task_with_its_output_layer_after_it():
    torch.manual_seed(1)
    head, z = TaskHead(7).double().eval(), embeddings()
    rows = ROWS.flatten(1)
    found = head(z, rows)
    for t, task in enumerate(rows):
        for place, i in enumerate(task):
            scores = torch.stack([head.query(z[i]) @ head.key(z[j]) / math.sqrt(7) for j in task])
            weights = scores.softmax(0)
            value = sum(w * head.value(z[j]) for w, j in zip(weights, task, strict=True))
            expected = F.layer_norm(head.out(value) + z[i], (7,), head.norm.weight, head.norm.bias)
            torch.testing.assert_close(found[t, place], expected)
    logits = head.logits(z, ROWS)
    tokens = found.view(2, 3, 2, 7)
    expected = tokens[1, 2, 0] @ F.normalize(tokens[1, 0, 1], dim=0)
    torch.testing.assert_close(logits[1, 1, 0, 1], expected)


@pytest.mark.parametrize("options", [{}, {"mixing": "hms", "mixed_negatives": 4}, {"head": "tsp"}])
def test_the_loss_is_the_mean_over_the_tasks_it_has_drawn(options):
    method = make(**options).eval()
    view_a, view_b = torch.randn(2 * 6, 1, 16, 16), torch.randn(6, 1, 16, 16)
    torch.manual_seed(3)
    found = run_loss(method, view_a, view_b)["total"]
    torch.manual_seed(3)
    z = method.backbone(torch.cat([view_b, view_a]))  # (18, 8)
    tasks = torch.rand(5, 6).argsort(1)[:, :3].tolist()
    hard = mixed_logits(z, 6, 4) if method.mixed_negatives else None
    losses = []
    for images in tasks:
        task = torch.tensor([[image + 6 * v for image in images] for v in range(3)])
        tokens = z[task] if method.head is None else method.head(z, task.view(1, -1)).view(3, 3, 8)
        for v in (1, 2):
            for n in range(3):
                logits = [tokens[v, n] @ F.normalize(tokens[0, m], dim=0) for m in range(3)]
                logits += [] if hard is None else list(hard[task[v, n]])
                losses.append(torch.stack(logits).logsumexp(0) - logits[n])
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_with_two_views_every_image_has_one_shot_and_one_query():
    logs = run_loss(make(), torch.randn(6, 1, 16, 16), torch.randn(6, 1, 16, 16))
    assert torch.isfinite(logs["total"])
    assert 0 <= float(logs["accuracy"]) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 1}, "ways must be at least 2, got 1"),
        ({"tasks": 0}, "tasks must be at least 1, got 0"),
        ({"mixing": "mixup"}, "mixing must be 'none' or 'hms', got 'mixup'"),
        ({"head": "linear"}, "head must be 'none' or 'tsp', got 'linear'"),
        ({"mixed_negatives": 0}, "mixed_negatives must be at least 1, got 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        make(**options)


def test_batches_too_small_for_a_task_are_refused():
    with pytest.raises(InputError, match=r"batch_size must be at least method\.ways, 3"):
        make().set_batch_size(2)
    with pytest.raises(InputError, match="mixed_negatives must be at most 6 with this batch"):
        make(mixing="hms").set_batch_size(4)


@pytest.fixture
def settings(tiny):
    own = [s for s in tiny if not s.startswith(("method", "train"))]
    method = "method={name: uml, ways: 4, tasks: 8, mixing: hms, mixed_negatives: 3, head: tsp}"
    train = "train={steps: 8, batch_size: 12, learning_rate: 0.002, optimizer: adam, log_steps: 1}"
    return [*own, method, train, "views.count=3"]


def test_a_stopped_run_resumes_to_the_same_bits_and_keeps_no_head(pictures, tmp_path, settings):
    Trainer(pictures, tmp_path / "whole", "glyphs", settings, progress=False).run()

    def stop(row) -> None:
        if row["step"] == 5 and not stopped:
            stopped.append(5)
            raise KeyboardInterrupt

    stopped: list[int] = []
    for _ in range(2):
        trainer = Trainer(
            pictures,
            tmp_path / "parts",
            "glyphs",
            settings,
            resume=True,
            checkpoint_steps=2,
            loggers=[stop],
            progress=False,
        )
        try:
            trainer.run()
        except KeyboardInterrupt:
            continue
    one, other = (load_resume(tmp_path / name)["method"] for name in ("whole", "parts"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(name.startswith("head.") for name in one)
    model = load_file(tmp_path / "whole" / "model.safetensors")
    assert not any(name.startswith("head.") for name in model)
    assert psco.load(tmp_path / "whole").method.rule == "class-mean"


def test_a_short_run_beats_raw_pixels_on_glyphs(tmp_path, few_glyphs, raw_pixels):
    train = ["backbone.width=16", "train={steps: 30, batch_size: 40, optimizer: adam}"]
    train += ["train.learning_rate=0.002", "train.weight_decay=0", "method.tasks=64"]
    overrides = ["method.name=uml", *train, "views.count=4"]
    data = psco.load_dataset("glyphs", "train").unlabelled()
    data = psco.ImageSet(data.images[:4000])
    trainer = Trainer(data, tmp_path / "run", "glyphs", overrides, progress=False)
    trainer.run()
    ours, pixels = (
        evaluate(model, few_glyphs, ways=20, shots=1, queries=5, tasks=100).mean
        for model in (psco.load(tmp_path / "run"), raw_pixels)
    )
    assert ours > pixels + 5
    report = evaluate(psco.load(tmp_path / "run"), few_glyphs, tasks=5)
    assert report.options == {"normalise": False}
    assert isinstance(psco.load(tmp_path / "run"), Encoder)
    assert np.isfinite(ours)
