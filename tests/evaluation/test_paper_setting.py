"""The paper's numbers, the settings they belong to, and the rules of its tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import psco
from psco.data.tasks import Tasks
from psco.evaluation.evaluate import default_rule
from psco.evaluation.paper_setting import departures
from psco.evaluation.published import is_transductive, published, trained_on
from psco.recipes.build import build_method
from psco.training.checkpoint import save_checkpoint, start_folder

TASKS = [Tasks(np.zeros((1, 5, 1), int), np.zeros((1, 5, 15), int))]
TRAINING = {"name": "miniimagenet", "images": 38_400}
STEPS = 60_000  # 400 epochs of 150 batches


def test_the_papers_numbers_are_those_of_its_tables():
    assert published("omniglot", "psco") == {
        (5, 1): 96.37,
        (5, 5): 99.13,
        (20, 1): 89.64,
        (20, 5): 97.07,
    }
    assert published("miniimagenet", "moco")[5, 20] == 60.23
    assert published("eurosat", "protonets") == {(5, 5): 64.91, (5, 20): 70.88}
    assert set(published("omniglot", "lasium-maml")) == {(5, 1), (5, 5)}
    assert published("glyphs", "psco") == published("omniglot", "byol") == {}
    assert trained_on("cub") == "miniimagenet"
    assert is_transductive("maml")
    assert not is_transductive("protonets")


def images(name="miniimagenet", classes=20, each=600, split="test") -> psco.ImageSet:
    """Return a labelled set of black images, which takes no memory."""
    pixels = np.broadcast_to(np.zeros((1, 1, 1, 1), np.uint8), (classes * each, 8, 8, 3))
    names = tuple(f"class{number}" for number in range(classes))
    return psco.ImageSet(pixels, np.repeat(np.arange(classes), each), names, name, split)


@pytest.fixture
def encoder(tmp_path):
    """Save a run of miniImageNet with given changes, without training it, and load it."""

    def make(*changes, data=TRAINING, steps=STEPS, recipe="miniimagenet", **options):
        folder = tmp_path / "run"
        settings = psco.load_recipe(recipe, changes)
        start_folder(folder, settings, {"data": data})
        save_checkpoint(folder, build_method(settings), settings, steps, {})
        return psco.load(folder, **options)

    return make


def test_a_run_of_the_papers_recipe_on_the_whole_test_split_is_in_its_setting(encoder):
    trained = encoder("train.seed=3", "train.log_steps=50")
    assert departures(trained, images(), TASKS) == []
    assert departures(trained, images("eurosat", 10, 2700), TASKS) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("method.sinkhorn=false", "method.sinkhorn is False, not True"),
        ("method.shots=2", "method.shots is 2, not 4"),
        ("views.view_a.flip=null", "views.view_a is"),
        ("views.at_test=4", "views.at_test is 4, not 0"),
        ("heads.hidden=512", "heads.hidden is 512, not 2048"),
        ("backbone.width=32", "backbone.width is 32, not 64"),
        ("train.epochs=40", "train.epochs is 40.0, not 400.0"),
        ("image.source_size=100", "image.source_size is 100, not 84"),
        ("method.name=byol", "the paper has no result for byol on miniimagenet"),
    ],
)
def test_any_changed_setting_is_a_departure(encoder, change, expected):
    found = departures(encoder(change), images(), TASKS)
    assert len(found) == 1
    assert found[0].startswith(expected)


def test_views_added_at_test_are_a_departure(encoder):
    assert departures(encoder(views_at_test=2), images(), TASKS) == ["views.at_test is 2, not 0"]


def test_unfinished_training_and_other_training_data_are_departures(encoder, tmp_path):
    found = departures(encoder(steps=30_000), images(), TASKS)
    assert found == ["trained for 30000 steps, not 60000"]
    (tmp_path / "run").rename(tmp_path / "first")
    own = encoder(data={"name": "own", "images": 38_400})
    assert departures(own, images(), TASKS) == ["trained on own, not miniimagenet"]
    (tmp_path / "run").rename(tmp_path / "second")
    part = encoder(data={"name": "miniimagenet", "images": 5_000})
    assert "trained on 5000 images, not 38400" in departures(part, images(), TASKS)


def test_a_part_of_the_test_data_or_another_test_is_a_departure(encoder):
    trained = encoder()
    few = departures(trained, images("eurosat", 10, 200), TASKS)
    assert few == ["eurosat is not known to be complete: 10 classes, 2000 images"]
    assert departures(trained, images("cropdiseases", 38, 200), TASKS)
    assert departures(trained, images("cropdiseases", 38, 1200), TASKS) == []
    assert departures(trained, images("cars", 49, 80), TASKS)  # the full size is not known
    assert departures(trained, images(split="val"), TASKS)
    fewer = replace(TASKS[0], query=TASKS[0].query[:, :, :5])
    assert departures(trained, images(), [fewer]) == ["5 queries per class, not 15"]


def test_a_fast_recipe_gets_no_number_of_the_paper(encoder):
    drawings = images("omniglot", 4 * 423, 20)
    data = {"name": "omniglot", "images": 4 * 20_560}
    fast = encoder(data=data, recipe="omniglot-fast")
    assert departures(fast, drawings, TASKS)


def test_the_whole_omniglot_with_its_rotations_is_the_papers_test(encoder):
    drawings = images("omniglot", 4 * 423, 20)
    data = {"name": "omniglot", "images": 4 * 20_560}
    trained = encoder(data=data, recipe="omniglot", steps=128_400)
    assert departures(trained, drawings, TASKS) == []


@pytest.mark.parametrize(
    ("method", "own", "transfer"),
    [
        ("psco", "prototype", "adapt"),
        ("moco", "knn", "linear"),
        ("protonets", "euclidean", "euclidean"),
    ],
)
def test_cross_domain_data_gets_the_rule_of_the_papers_cross_domain_table(
    encoder, method, own, transfer
):
    trained = encoder(f"method.name={method}")
    assert default_rule(trained, images()) == own
    assert default_rule(trained, images("glyphs")) == own
    assert default_rule(trained, images("eurosat", 10, 20)) == transfer


def test_a_run_is_not_cross_domain_on_the_data_it_was_trained_on(encoder):
    trained = encoder(data={"name": "eurosat", "images": 100})
    assert default_rule(trained, images("eurosat", 10, 20)) == "prototype"


def test_evaluate_takes_the_cross_domain_rule_on_cross_domain_data(encoder):
    small = ["image.size=32", "image.source_size=32", "backbone.width=8", "heads.hidden=16"]
    trained = encoder(*small, "method.queue_size=64")
    options = {"ways": 5, "queries": 5, "tasks": 2}
    assert psco.evaluate(trained, images("eurosat", 10, 20), **options).rule == "adapt"
    assert psco.evaluate(trained, images("glyphs", 10, 20), **options).rule == "prototype"
    chosen = psco.evaluate(trained, images("eurosat", 10, 20), rule="knn", **options)
    assert chosen.rule == "knn"


@pytest.mark.parametrize("method", ["maml", "protonets"])
def test_the_cross_domain_table_has_its_own_recipe_of_supervised_meta_learning(encoder, method):
    eurosat = images("eurosat", 10, 2700)
    assert departures(encoder(recipe=f"miniimagenet-{method}"), eurosat, TASKS) == []
    other = encoder(f"method.name={method}", "train.steps=60000")
    assert "train.select is last, not validation" in departures(other, eurosat, TASKS)
