"""The contract of every registered method: it learns, resumes, is listed and is evaluated."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import psco
from psco.cli import app
from psco.experiments.suite import train_methods
from psco.methods import METHODS
from psco.recipes.recipe import load_recipe, with_flags
from psco.training.checkpoint import load_resume

pytestmark = pytest.mark.usefixtures("quick_calibration")

FLOORS = {"pixels", "pretrained", "random", "scratch"}
LEARNERS = [name for name in METHODS if name not in FLOORS]
SUPERVISED = ["maml", "protonets", "supervised"]
GENERATOR = ["method.generator_steps=80", "method.generator_width=8"]
CLUSTERS = ["method.encoder=pixels", "method.clusters=20", "method.partitions=2", "method.ways=5"]
OWN = {  # what a small data set leaves room for, and what shows in few steps
    "cactus-maml": [*CLUSTERS, "method.inner_steps=2", "method.test_steps=5"],
    "cactus-protonets": [*CLUSTERS, "method.queries=5"],
    "lasium-maml": [*GENERATOR, "method.inner_steps=2", "method.test_steps=5"],
    "lasium-protonets": GENERATOR,
    "meta-gmvae": ["method.width=4"],
    "meta-svebm": ["method.width=4", "method.langevin_steps=3", "method.test_steps=5"],
    "maml": ["method.ways=5", "method.inner_steps=2", "method.test_steps=5"],
    "psco": ["method.queue_size=200"],
    "psco-byol": ["method.queue_size=200"],
    "supervised": ["train.learning_rate=0.5"],
    "swav": ["method.clusters=30"],
    "umtra": ["method.ways=5", "method.inner_steps=2", "method.test_steps=5"],
}


def train(images, name, out, small, **options):
    options = {"steps": 20, "recipe": "glyphs", "progress": False, **options}
    changes = [*small, *OWN.get(name, [])]
    if name == "pretrained":  # with the weights of a random network
        options["init"] = train(images, "random", f"{out}-random", small).folder
    return psco.pretrain(images, out=out, method=name, overrides=changes, **options)


@pytest.mark.parametrize("name", LEARNERS)
def test_twenty_steps_lower_the_loss_and_an_interruption_changes_no_bit(
    name, few_glyphs, small, tmp_path
):
    whole = train(few_glyphs, name, tmp_path / "whole", small)
    losses = [row["total"] for row in whole.metrics]
    assert len(losses) == 20
    assert np.mean(losses[-5:]) < np.mean(losses[:5])

    def stop(row):
        if row["step"] == 13:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        train(few_glyphs, name, tmp_path / "parts", small, loggers=[stop], checkpoint_steps=8)
    assert load_resume(tmp_path / "parts")["step"] == 8
    train(few_glyphs, name, tmp_path / "parts", small, resume=True)
    one, other = (load_resume(tmp_path / part)["method"] for part in ("whole", "parts"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_is_evaluated_from_its_run_folder_under_its_own_rule(
    name, few_glyphs, small, tmp_path
):
    run = train(few_glyphs, name, tmp_path / "run", small, steps=2)
    assert run.finished
    encoder = psco.load(tmp_path / "run")
    assert encoder.steps == (0 if name in FLOORS else 2)
    rule = encoder.method.rule
    fast = {"options": {"steps": 5}} if rule in ("maml", "scratch", "svebm") else {}
    report = psco.evaluate(encoder, few_glyphs, tasks=4, queries=5, rule=rule, **fast)
    again = psco.evaluate(str(tmp_path / "run"), few_glyphs, tasks=4, queries=5, rule=rule, **fast)
    assert report.per_task == again.per_task
    # After two steps PsCo's predictor still sends queries anywhere; the features must be of use.
    if encoder.method.has_features:
        report = psco.evaluate(encoder, few_glyphs, tasks=20, queries=5, rule="class-mean")
    assert report.mean > 30  # chance is 20


@pytest.mark.parametrize("name", [name for name in LEARNERS if name not in SUPERVISED])
def test_no_method_without_supervision_reads_a_label(name, few_glyphs, small, tmp_path):
    changes = [*small, "train.purity=false"]
    random = np.random.default_rng(0).permutation(few_glyphs.labels)
    weights = []
    for place, images in enumerate((few_glyphs.unlabelled(), replace(few_glyphs, labels=random))):
        train(images, name, tmp_path / str(place), changes, steps=2)
        weights.append(load_resume(tmp_path / str(place))["method"])
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.parametrize("name", SUPERVISED)
def test_a_supervised_method_needs_labels(name, few_glyphs, small, tmp_path):
    changes = [*small, "train.purity=false"]
    with pytest.raises(psco.InputError, match=f"'{name}' needs labels, and 'glyphs' has none"):
        train(few_glyphs.unlabelled(), name, tmp_path / "run", changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["method.ways=31"], "31 classes of at least 6 images; 30 of 30 classes have enough"),
        (["method.ways=5", "method.shots=16"], "5 classes of at least 21 images; 0 of 30 classes"),
    ],
)
@pytest.mark.parametrize("name", ["maml", "protonets"])
def test_tasks_larger_than_the_data_are_an_error_and_write_nothing(
    name, changes, message, few_glyphs, small, tmp_path
):
    with pytest.raises(psco.InputError, match=message):
        psco.pretrain(
            few_glyphs,
            out=tmp_path / "run",
            recipe="glyphs",
            method=name,
            overrides=[*small, *changes],
            progress=False,
        )
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------- registry


def test_psco_methods_lists_every_method_with_paper_kind_and_protocol(monkeypatch):
    facts = json.loads(CliRunner().invoke(app, ["methods", "--json"]).stdout)
    assert {fact["name"] for fact in facts} == set(METHODS)
    kinds = {fact["name"]: fact["kind"] for fact in facts}
    assert {name for name, kind in kinds.items() if kind == "supervised"} == set(SUPERVISED)
    assert {name for name, kind in kinds.items() if kind == "baseline"} == FLOORS
    assert kinds["psco"] == "unsupervised"
    for fact in facts:
        assert fact["summary"]
        assert fact["protocol"].startswith(("inductive", "transductive"))
        assert fact["paper"] or fact["name"] in {*FLOORS, "supervised", "psco-byol"}
    monkeypatch.setenv("COLUMNS", "200")
    table = CliRunner().invoke(app, ["methods"]).stdout
    for name in METHODS:
        assert name in table


def test_an_unknown_method_is_an_error_with_the_nearest_name(tmp_path):
    for words in (
        "pretrain glyphs --method protonet --steps 2",
        "compare --train --data glyphs --methods psco,protonet --steps 2",
    ):
        run = CliRunner().invoke(app, [*words.split(), "--out", str(tmp_path / "a")])
        assert run.exit_code == 2
        assert "unknown method 'protonet'; did you mean 'protonets'?" in run.stderr
    assert not (tmp_path / "a").exists()


def test_a_method_named_by_a_flag_takes_the_options_of_the_recipe_that_it_has():
    def method(recipe, name):
        return load_recipe(recipe, with_flags(method=name)).method

    assert method("omniglot", "psco").options["shots"] == 1
    variant = method("omniglot", "psco-byol").options
    assert (variant["shots"], variant["auxiliary"]) == (1, "byol")
    assert method(load_recipe("omniglot"), "psco-byol").options == variant
    assert method("omniglot", "moco").options["temperature"] == 0.2


@pytest.mark.parametrize("name", ["simclr", "moco", "swav"])
def test_the_rivals_have_no_predictor_and_psco_and_byol_have_one(name):
    assert not load_recipe("omniglot", with_flags(method=name)).heads.predictor
    for other in ("psco", "byol", "psco-byol"):
        assert load_recipe("omniglot", with_flags(method=other)).heads.predictor


def test_the_published_temperatures_queue_and_momentum_are_the_defaults():
    options = {name: METHODS.options(name, {}) for name in METHODS}
    assert options["simclr"]["temperature"] == 0.5
    published = {"queue_size": 16384, "momentum": 0.99, "temperature": 0.2}
    assert published.items() <= options["moco"].items()
    assert options["swav"]["temperature"] == 0.1
    assert options["byol"]["symmetric"]


# ------------------------------------------------------------------------------- training several


def test_methods_are_trained_one_by_one_and_finished_ones_are_skipped(few_glyphs, small, tmp_path):
    changes = {"steps": 2, "recipe": "glyphs", "overrides": small, "progress": False}
    runs = train_methods(few_glyphs, ["simclr", "moco"], tmp_path, **changes)
    assert [run.folder.name for run in runs] == ["simclr", "moco"]
    assert all(run.finished and run.steps == 2 for run in runs)
    before = {run.folder: (run.folder / "resume.pt").read_bytes() for run in runs}
    runs = train_methods(few_glyphs, ["moco", "simclr", "random"], tmp_path, **changes)
    assert [run.steps for run in runs] == [2, 2, 0]
    assert all((folder / "resume.pt").read_bytes() == kept for folder, kept in before.items())


def test_settings_that_one_method_cannot_use_are_an_error_before_any_is_trained(
    few_glyphs, small, tmp_path
):
    def attempt(methods, images=few_glyphs, changes=(), **options):
        options = {"steps": 2, "recipe": "glyphs", "progress": False, **options}
        with pytest.raises(psco.InputError) as caught:
            train_methods(images, methods, tmp_path / "x", overrides=[*small, *changes], **options)
        assert not (tmp_path / "x").exists()
        return str(caught.value)

    blind = few_glyphs.unlabelled()
    assert "'protonets' needs labels" in attempt(
        ["moco", "protonets"], blind, ["train.purity=false"]
    )
    assert "need 30 classes" not in attempt(["moco", "maml"], changes=["train.batch_size=1000"])
    assert "unknown option of method 'simclr'" in attempt(
        ["moco", "simclr"], changes=["method.queue_size=50"]
    )
    assert "set one budget" in attempt(["moco"], minutes=1)
    assert "names no method" in attempt([])
