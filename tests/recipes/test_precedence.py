"""Which value counts when a base, a recipe, a method and the command line all set it."""

from __future__ import annotations

import pytest
import yaml

import psco
from psco.methods import METHODS
from psco.recipes.recipe import Override, resolve_recipe, with_flags


@pytest.fixture
def write(tmp_path):
    """Write a recipe file; returns its path."""

    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def settings(recipe, *overrides, **flags):
    return psco.load_recipe(recipe, with_flags(overrides, **flags)).model_dump(mode="json")


def test_a_recipe_takes_what_it_does_not_set_from_its_base(write):
    mine = write("mine.yaml", "base: omniglot\nmethod: {shots: 2}\ntrain: {seed: 5}\n")
    expected = settings("omniglot")
    expected["method"]["shots"] = 2
    expected["train"]["seed"] = 5
    assert settings(mine) == expected


def test_a_base_can_be_a_file_beside_the_recipe_and_have_a_base_itself(write):
    write("low.yaml", "base: omniglot\nmethod: {shots: 2, momentum: 0.5}\n")
    write("sub/middle.yaml", "base: ../low.yaml\nmethod: {momentum: 0.6}\n")
    method = settings(write("high.yaml", "base: sub/middle.yaml\n"))["method"]
    assert (method["queue_size"], method["shots"], method["momentum"]) == (16384, 2, 0.6)


def test_the_length_of_a_recipe_replaces_that_of_its_base(write):
    train = settings(write("mine.yaml", "base: omniglot\ntrain: {steps: 9}\n"))["train"]
    assert (train["epochs"], train["steps"]) == (None, 9)


def test_the_parts_of_a_view_are_changed_added_and_left_out_one_by_one(write):
    text = """
base: miniimagenet
views:
  view_a: {grey: null, jitter: {hue: 0.3}, blur: {}}
"""
    view = settings(write("mine.yaml", text))["views"]["view_a"]
    assert list(view) == ["crop", "jitter", "flip", "blur"]
    assert (view["jitter"]["hue"], view["jitter"]["probability"]) == (0.3, 0.8)


def test_a_view_that_names_all_parts_of_its_base_has_its_own_order(write):
    text = "base: omniglot\nviews: {view_a: {erase: {}, flip: {}, crop: {}}}\n"
    views = settings(write("mine.yaml", text))["views"]
    assert list(views["view_a"]) == ["erase", "flip", "crop"]
    assert views["view_a"]["crop"] == views["view_b"]["crop"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base: omniglt", "mine.yaml': base: unknown recipe 'omniglt'; did you mean 'omniglot'"),
        ("base: none.yaml", "mine.yaml': base: there is no recipe file '.*none.yaml'"),
        ("base: mine.yaml", "its bases form a cycle: .*mine.yaml -> mine.yaml"),
        ("base: ../r/other.yaml", "form a cycle: .*mine.yaml -> other.yaml -> mine.yaml"),
        ("base: [omniglot]", "base must be one recipe's name or YAML file, got "),
    ],
)
def test_a_wrong_base_is_an_error_of_one_line(write, text, message):
    write("r/other.yaml", "base: ../r/mine.yaml\n")
    with pytest.raises(psco.InputError, match=message) as caught:
        psco.load_recipe(write("r/mine.yaml", text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("base", ["omniglot-fast", "imagenet"])
def test_it_does_not_matter_who_names_the_method(write, base, method):
    flag = settings(base, method=method)
    assert settings(base, f"method.name={method}") == flag
    file = write("mine.yaml", f"base: {base}\nmethod: {{name: {method}}}\n")
    assert settings(file) == flag
    assert settings(file, method=method) == flag
    assert settings(psco.load_recipe(base), method=method) == flag


def test_what_a_method_changes_in_every_recipe_wins_over_values_tuned_for_another_method(write):
    file = write("mine.yaml", "base: omniglot-fast\ntrain: {learning_rate: 0.5, seed: 3}\n")
    found = settings(file, method="maml")
    assert found["views"]["view_a"] == found["views"]["view_b"] == {}
    assert found["views"]["at_test"] == 4
    train = found["train"]
    assert (train["optimizer"], train["learning_rate"], train["seed"]) == ("adam", 0.001, 3)


def test_a_recipe_for_a_method_wins_over_what_the_method_changes_in_every_recipe(write):
    text = "base: omniglot\nmethod: {name: maml}\ntrain: {learning_rate: 0.5}\n"
    file = write("mine.yaml", text)
    train = settings(file)["train"]
    assert (train["optimizer"], train["learning_rate"]) == ("adam", 0.5)
    above = write("above.yaml", "base: mine.yaml\nviews: {view_b: {flip: {}}}\n")
    assert settings(above)["train"] == train
    assert list(settings(above)["views"]["view_b"]) == ["flip"]


def test_the_command_line_wins_over_everything():
    train = settings("omniglot", "train.learning_rate=0.7", method="maml")["train"]
    assert (train["optimizer"], train["learning_rate"]) == ("adam", 0.7)


@pytest.mark.parametrize(
    ("recipe", "method", "expected"),
    [
        ("imagenet", "moco", {"queue_size": 65536, "momentum": 0.999, "temperature": 0.2}),
        ("imagenet", "byol", {"momentum": 0.999}),
        ("omniglot-fast", "moco", {"queue_size": 4096, "momentum": 0.95, "temperature": 0.07}),
        ("omniglot-fast", "psco-byol", {"shots": 1, "own_view": True, "auxiliary": "byol"}),
        # The same names with other meanings:
        ("imagenet", "simclr", {"temperature": 0.5}),
        ("imagenet", "swav", {"temperature": 0.1, "queue_size": 0}),
        ("imagenet", "maml", {"shots": 1}),
        ("imagenet", "protonets", {"shots": 1}),
    ],
)
def test_options_of_the_recipe_carry_over_to_another_method_that_has_them(recipe, method, expected):
    options = settings(recipe, method=method)["method"]
    assert {name: options[name] for name in expected} == expected


def test_the_temperature_of_moco_carries_over_to_mocos_loss_within_psco(write):
    text = "method: {name: moco, temperature: 0.3}\ntrain: {steps: 3}\n"
    options = settings(write("mine.yaml", text), method="psco")["method"]
    assert (options["temperature"], options["moco_temperature"]) == (1.0, 0.3)
    text = "method: {name: psco, auxiliary: moco}\ntrain: {steps: 3}\n"
    assert settings(write("b.yaml", text), method="psco-byol")["method"]["auxiliary"] == "byol"


def test_every_value_is_printed_with_its_source(write):
    text = "base: omniglot-fast\ntrain: {batch_size: 64}\nviews: {view_a: {elastic: {grid: 3}}}\n"
    flags = with_flags(["method.shots=3", Override("train.precision", "bf16-mixed", "--precision")])
    resolved = resolve_recipe(write("mine.yaml", text), with_flags(flags, steps=7))
    printed = resolved.to_yaml()
    assert yaml.safe_load(printed) == resolved.recipe.model_dump(mode="json")
    lines = [line.strip() for line in printed.splitlines()]
    for expected in (
        "steps: 7  # --steps",
        "shots: 3  # --set",
        "precision: bf16-mixed  # --precision",
        f"batch_size: 64  # recipe {write('mine.yaml', text)}",
        "epochs: null  # default",
        "queue_size: 4096  # base omniglot-fast",
        "mean: [0.92206]  # base omniglot",
        "sinkhorn_epsilon: 0.05  # default",
        "name: psco  # base omniglot",
    ):
        assert expected in lines, expected
    view = printed[printed.index("view_a:") : printed.index("view_b:")]
    assert "grid: 3  # recipe" in view
    assert "sigma: 0.05  # base omniglot-fast" in view


def test_the_settings_of_a_method_are_printed_with_its_name():
    printed = resolve_recipe("omniglot", with_flags(method="maml")).to_yaml()
    assert "view_a: {}  # method maml\n" in printed
    assert "name: maml  # --method\n" in printed
    assert "learning_rate: 0.001  # method maml\n" in printed
