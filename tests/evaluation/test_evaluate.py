from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import typer
from PIL import Image
from typer.testing import CliRunner

import psco
from psco.cli.evaluate import evaluate as evaluate_command
from psco.data.tasks import sample_tasks
from psco.evaluation.embed import Encoder
from psco.evaluation.evaluate import classify_tasks, draw_tasks, evaluate_tasks
from psco.evaluation.rules import RULES, Embeddings
from psco.evaluation.rules.prototype import Prototype
from psco.progress import Bar
from psco.recipes.build import build_method
from psco.training.checkpoint import save_checkpoint, start_folder


class Table:
    """Embeds image i as row i of two given tables."""

    heads = None

    def __init__(self, query, support) -> None:
        self.query, self.support = query, support

    def embed(self, images):
        return Embeddings(self.support, self.support, self.query)


@pytest.fixture
def images() -> psco.ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (80, 4, 4, 1), dtype=np.uint8)
    return psco.ImageSet(pixels, np.arange(80) // 8, tuple("abcdefghij"), "noise", "test")


@pytest.fixture
def table() -> Table:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 6, generator=generator).repeat_interleave(8, dim=0)
    noise = torch.randn(2, 80, 6, generator=generator)
    return Table(F.normalize(centres + noise[0], dim=1), F.normalize(centres + noise[1], dim=1))


def test_predictions_and_accuracy_are_those_of_a_loop_over_tasks(images, table):
    report = psco.evaluate(table, images, ways=4, shots=3, queries=5, tasks=30, seed=2)
    tasks = sample_tasks(images.labels, 4, 3, 5, 30, 2)
    accuracies = []
    for support, query in zip(tasks.support, tasks.query, strict=True):
        right = 0
        prototypes = [F.normalize(table.support[rows].sum(dim=0), dim=0) for rows in support]
        for true, rows in enumerate(query):
            for row in rows:
                scores = [float(table.query[row] @ c) for c in prototypes]
                right += scores.index(max(scores)) == true
        accuracies.append(100 * right / 20)
    assert report.per_task == pytest.approx(accuracies)
    assert report.mean == pytest.approx(np.mean(accuracies))
    assert report.ci95 == pytest.approx(1.96 * np.std(accuracies, ddof=1) / math.sqrt(30))


def test_predictions_do_not_change_when_queries_are_permuted_or_split(images):
    encoder = Encoder.untrained(psco.load_recipe("glyphs"))
    points = encoder.embed(images.images)
    tasks = sample_tasks(images.labels, 5, 1, 7, 10, 0)
    together = classify_tasks(points, tasks, Prototype())
    order = np.random.default_rng(1).permutation(80)
    restored = encoder.embed_query(images.images[order])[np.argsort(order)]
    torch.testing.assert_close(restored, points.query)
    alone = torch.cat([encoder.embed_query(images.images[i : i + 1]) for i in range(80)])
    torch.testing.assert_close(alone, points.query)
    for index in range(7):
        single = type(tasks)(tasks.support, tasks.query[:, :, index : index + 1])
        assert torch.equal(
            classify_tasks(points, single, Prototype())[..., 0], together[..., index]
        )


def test_all_models_meet_the_same_tasks(images, table):
    one = psco.evaluate(table, images, queries=5, tasks=20)
    again = psco.evaluate(table, images, queries=5, tasks=20)
    several = evaluate_tasks(table, images, draw_tasks(images, [(5, 1), (3, 2)], 5, 20, 0))
    assert one == again == several[0]
    assert several[1].ways == 3


def test_raw_pixels_recognise_copies_and_nothing_in_noise(images, raw_pixels):
    copies = np.repeat(images.images[:10], 8, axis=0)
    same = psco.ImageSet(copies, images.labels, images.classes)
    assert psco.evaluate(raw_pixels, same, queries=5, tasks=20).mean == 100
    assert psco.evaluate(raw_pixels, images, queries=5, tasks=200).mean < 30


def test_a_report_writes_itself_as_json_and_markdown(images, table):
    report = psco.evaluate(table, images, queries=5, tasks=20)
    data = json.loads(report.to_json())
    assert len(data["per_task"]) == 20
    assert data["rule"] == "prototype"
    assert "per_task" not in report.as_dict()
    assert data["hash"] == report.hash
    assert report.as_dict()["hash"] == report.hash
    assert "5-way 1-shot" in report.to_markdown()
    assert "prototype (inductive)" in report.to_markdown()
    other = psco.evaluate(table, images, queries=5, tasks=20, rule="transductive")
    assert "transductive (transductive)" in other.to_markdown()


def test_results_compare_on_the_same_tasks_only(images, table, raw_pixels):
    good = psco.evaluate(table, images, queries=5, tasks=40)
    poor = psco.evaluate(raw_pixels, images, queries=5, tasks=40)
    gain = good.compare(poor)
    gains = np.array(good.per_task) - np.array(poor.per_task)
    assert gain.mean == pytest.approx(good.mean - poor.mean)
    assert gain.ci95 == pytest.approx(1.96 * gains.std(ddof=1) / math.sqrt(40))
    assert gain.significant
    assert not good.compare(good).significant
    with pytest.raises(psco.InputError, match="seed is 0 and 1"):
        good.compare(psco.evaluate(table, images, queries=5, tasks=40, seed=1))


def test_the_hash_of_a_result_is_that_of_its_settings(images, table, raw_pixels):
    one, other = (
        psco.evaluate(model, images, queries=5, tasks=9, rule="prototype")
        for model in (table, raw_pixels)
    )
    assert one.hash == other.hash
    assert one.hash != psco.evaluate(table, images, queries=5, tasks=9, rule="class-mean").hash


def test_unknown_rules_and_options_are_refused(images, table):
    with pytest.raises(psco.InputError, match="'prototypes'; did you mean 'prototype'"):
        psco.evaluate(table, images, queries=5, tasks=9, rule="prototypes")
    with pytest.raises(psco.InputError, match="unknown option of rule 'prototype' 'k'"):
        psco.evaluate(table, images, queries=5, tasks=9, options={"k": 3})
    with pytest.raises(psco.InputError, match="adapt_steps requires the rule 'adapt'"):
        psco.evaluate(table, images, queries=5, tasks=9, rule="class-mean", adapt_steps=5)


@dataclass(frozen=True)
class Slow:
    """Always predicts the first class, a few tasks at a time."""

    sizes: list[int] = field(default_factory=list)
    transductive: ClassVar[bool] = False
    tasks_at_once: ClassVar[int] = 8

    def __call__(self, support, query):
        self.sizes.append(len(support.labels))
        first = torch.zeros(query.query.shape[:2], dtype=torch.int64)
        return F.one_hot(first, support.ways).float()


def test_slow_rules_report_their_mean_after_a_few_tasks_each(images, table, monkeypatch):
    seen = []
    monkeypatch.setattr(Bar, "update", lambda _, done, news: seen.append((done, news)))
    tasks, rule = sample_tasks(images.labels, 4, 3, 5, 20, 0), Slow()
    classify_tasks(table.embed(None), tasks, rule, progress=True)
    assert rule.sizes == [8, 8, 4]
    assert seen == [(0.4, "mean 25.00 %"), (0.8, "mean 25.00 %"), (1.0, "mean 25.00 %")]
    slow = {name for name in RULES if hasattr(RULES[name], "tasks_at_once")}
    assert slow == {"adapt", "gmvae", "maml", "scratch", "svebm"}


def test_adapt_steps_must_be_a_number_of_steps(images, table):
    for steps in (-1, 0.5, "many"):
        with pytest.raises(psco.InputError, match=f"whole number >= 0, got {steps!r}"):
            psco.evaluate(table, images, queries=5, tasks=9, adapt_steps=steps)


@pytest.fixture
def run(tmp_path, tiny):
    recipe = psco.load_recipe("glyphs", tiny)
    start_folder(tmp_path / "run", recipe, {})
    save_checkpoint(tmp_path / "run", build_method(recipe), recipe, 0, {})
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ways", "4"], "need 4 classes of at least 16 images; 3 of 3 classes have enough"),
        (["--ways", "3", "--shots", "2"], "at least 17 images; 0 of 3 classes have enough"),
        (["--ways", "3", "--queries", "0"], "queries must be at least 1, not 0"),
        (["--ways", "3", "--tasks", "0"], "tasks must be at least 1, not 0"),
        (["--ways", "3", "--rule", "kn"], "unknown rule 'kn'; did you mean 'knn'"),
        (["--ways", "3", "--rule", "knn", "--set", "k=9"], "between 1 and the 3 supports"),
        (
            ["--ways", "3", "--rule", "knn", "--adapt-steps", "5"],
            "the rule 'adapt', got 'knn'",
        ),
        (["--ways", "3", "--adapt-steps", "-5"], ">= 0, got -5"),
    ],
)
def test_the_command_refuses_bad_input_in_one_line_and_writes_nothing(
    run, tmp_path, words, message
):
    random = np.random.default_rng(0)
    for number in range(48):
        (tmp_path / "data" / "abc"[number % 3]).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (16, 16), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "data" / "abc"[number % 3] / f"{number}.png")
    app = typer.Typer()
    app.command()(evaluate_command)
    outputs = ["--html", str(tmp_path / "page.html"), "--save-tasks", str(tmp_path / "tasks")]
    done = CliRunner().invoke(app, [str(run), "--data", str(tmp_path / "data"), *words, *outputs])
    assert done.exit_code == 2, done.output
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert done.stdout == ""
    assert {path.name for path in tmp_path.iterdir()} == {"run", "data"}


def test_images_without_labels_are_refused(images, table):
    with pytest.raises(psco.InputError, match="'noise' has no labels"):
        psco.evaluate(table, images.unlabelled())


def test_all_ways_are_the_classes_with_enough_images(images, table):
    short = psco.ImageSet(images.images, np.minimum(np.arange(80) // 8, 8), tuple("abcdefghi"))
    whole = psco.evaluate(table, short, ways="all", shots=3, queries=5, tasks=4)
    assert (whole.ways, whole.left_out) == (9, 0)
    fewer = np.where(np.arange(80) < 3, 8, short.labels)  # class 0 has 5 images left
    few = psco.ImageSet(images.images, fewer, short.classes)
    report = psco.evaluate(table, few, ways="all", shots=3, queries=5, tasks=4)
    assert (report.ways, report.left_out) == (8, 1)
    assert report == psco.evaluate(table, few, ways=8, shots=3, queries=5, tasks=4)
