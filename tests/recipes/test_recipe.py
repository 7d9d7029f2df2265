from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import psco
from psco.methods import METHODS
from psco.recipes.build import build_method, build_views
from psco.recipes.recipe import check_recipe, read_tree, recipe_names, with_flags
from psco.views import VIEW_PARTS, step_generator


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_of_the_package_builds(name):
    recipe = psco.load_recipe(name)
    method = build_method(recipe)
    assert type(method) is METHODS[recipe.method.name]
    if "queue_size" in recipe.method.options:
        assert method.queue.keys.shape == (recipe.method.options["queue_size"], 128)
    build_views(recipe)


def test_the_omniglot_recipe_is_the_paper():
    recipe = psco.load_recipe("omniglot")
    method, train = recipe.method.options, recipe.train
    assert (method["shots"], method["queue_size"], method["momentum"]) == (1, 16384, 0.99)
    assert (method["temperature"], method["moco_temperature"]) == (1.0, 0.2)
    assert (method["sinkhorn_epsilon"], method["sinkhorn_iterations"]) == (0.05, 3)
    assert (recipe.heads.hidden, recipe.heads.out) == (2048, 128)
    assert (train.epochs, train.batch_size, train.learning_rate) == (400, 256, 0.03)
    assert (train.weight_decay, train.sgd_momentum) == (5e-4, 0.9)
    assert recipe.views.view_a == recipe.views.view_b
    assert recipe.views.view_a["crop"]["scale"] == (0.2, 1.0)


def test_the_miniimagenet_recipe_is_the_paper():
    recipe = psco.load_recipe("miniimagenet")
    assert recipe.method.options["shots"] == 4
    assert recipe.backbone.name == "conv5"
    assert list(recipe.views.view_a) == ["crop", "jitter", "grey", "flip"]
    assert list(recipe.views.view_b) == ["crop", "flip"]


@pytest.mark.parametrize("name", ["omniglot", "miniimagenet", "imagenet"])
def test_departures_from_the_paper_are_off_in_its_recipes(name):
    recipe = psco.load_recipe(name)
    method, off = recipe.method.options, (None, False)
    for option in ("momentum_end", "filled_queue", "own_view", "reciprocal", "spare_shots"):
        assert method.get(option) in off, option
    assert method.get("moco_temperature", 0.2) == 0.2
    assert recipe.train.average_last == recipe.views.at_test == 0


@pytest.mark.parametrize("name", ["omniglot-fast", "omniglot-best"])
def test_the_views_for_handwriting_are_sampled_at_twice_their_size_from_half_the_drawing(name):
    views = psco.load_recipe(name).views
    assert views.view_a == views.view_b
    recipe = psco.load_recipe(name, [f"views.view_{view}.stroke=null" for view in "ab"])
    image = recipe.image
    assert (image.size, image.source_size) == (28, 53)
    affine, elastic = (VIEW_PARTS[n](**o) for n, o in recipe.views.view_a.items())
    assert (affine.rotation, affine.shear, affine.shift) == (15, 0.25, 0.2)
    assert affine.log_scale == (-0.25, 0.2)
    assert (elastic.grid, elastic.sigma) == (6, 0.05)
    assert affine.fill == elastic.fill == "white"

    drawings = torch.full((6, 1, 53, 53), 255, dtype=torch.uint8)
    drawings[:, :, 10:45, 20:24] = drawings[:, :, 30:33, 5:50] = 0
    draws = step_generator(0, 0)
    motions = [part.draw_motion(6, 53, 53, draws) for part in (affine, elastic)]
    line = (torch.arange(56) + 0.5) / 28 - 1
    points = torch.stack(torch.meshgrid(line, line, indexing="xy"))[None]  # (1, 2, 56, 56)
    for motion in reversed(motions):
        points = motion(points)
    ink = F.grid_sample(1 - drawings / 255, points.permute(0, 2, 3, 1), align_corners=False)
    expected = F.avg_pool2d(1 - ink, 2)  # no ink outside: white padding
    ours = build_views(recipe).view_a(drawings, step_generator(0, 0))
    torch.testing.assert_close(ours * image.std[0] + image.mean[0], expected, atol=1e-5, rtol=0)


def test_a_recipe_survives_its_own_yaml():
    for name in recipe_names():
        recipe = psco.load_recipe(name)
        again = check_recipe(read_tree(recipe.to_yaml(), "test"), "test")
        assert again == recipe
        assert again.hash() == recipe.hash()


def test_overrides_win_over_the_recipe():
    recipe = psco.load_recipe(
        "omniglot", ["method.shots=7", "train.learning_rate=1e-3", "views.view_a.flip=null"]
    )
    assert recipe.method.options["shots"] == 7
    assert recipe.train.learning_rate == 1e-3
    assert list(recipe.views.view_a) == ["crop"]
    assert recipe.hash() != psco.load_recipe("omniglot").hash()


def test_a_new_length_replaces_the_recipes():
    train = psco.load_recipe("omniglot", with_flags(steps=5)).train
    assert (train.epochs, train.steps, train.minutes) == (None, 5, None)


def test_a_recipe_can_be_a_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("train: {steps: 3}\nmethod: {name: psco, shots: 2}\n")
    assert psco.load_recipe(file).method.options["shots"] == 2


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("method.shotz=3", "unknown option of method 'psco' 'shotz'; did you mean 'shots'?"),
        ("method.shots=many", "method 'psco': shots: .*got 'many'"),
        ("trian.steps=3", "unknown setting 'trian'; did you mean 'train'?"),
        ("train.batchsize=3", "unknown setting 'batchsize'; did you mean 'batch_size'?"),
        ("train.batch_size=1", "train.batch_size: .*greater than or equal to 2, got 1"),
        ("method.name=[psco]", "needs a name"),
        ("method.name=pscoo", "unknown method 'pscoo'; did you mean 'psco'?"),
        ("backbone.name=conv6", "unknown backbone 'conv6'; did you mean 'conv"),
        ("views.view_a.crp={}", "unknown view part 'crp'; did you mean 'crop'?"),
        ("views.view_a.strok=null", "unknown view part 'strok'; did you mean 'stroke'?"),
        ("views.view_a.crop.scal=1", "unknown option of view part 'crop' 'scal'"),
        ("image.mean=[0.5, 0.5]", r"mean needs one number per channel \(1\)"),
        ("image.std=[0]", "std must be > 0"),
        ("train.steps.deep=1", "'steps' is a single value"),
        ("nonsense", "--set takes a.b=c"),
        ("train.steps=[", "is not YAML"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it_and_the_nearest_right_one(override, message):
    with pytest.raises(psco.InputError, match=message) as caught:
        psco.load_recipe("glyphs", [override])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train: {steps: 3, epochs: 2}", "set exactly one of epochs, steps and minutes"),
        ("method: {shots: 3}\ntrain: {steps: 3}", "needs a name"),
        ("method: psco\ntrain: {steps: 3}", "needs a name"),
        ("image: {}", "train is missing"),
        ("- a list", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_wrong_file_is_an_error_that_says_what_is_wrong(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(psco.InputError, match=message):
        psco.load_recipe(file)


def test_protonets_beside_omniglot_fast_differ_in_method_and_optimiser_alone():
    ours, theirs = (psco.load_recipe(f"omniglot-fast{end}") for end in ("", "-protonets"))
    assert theirs.method.name == "protonets"
    assert (ours.image, ours.views, ours.backbone) == (theirs.image, theirs.views, theirs.backbone)
    assert (ours.train.epochs, ours.train.batch_size) == (16, 256)
    assert (theirs.train.epochs, theirs.train.batch_size) == (16, 256)
    assert theirs.train.optimizer == "adam"


def test_unknown_recipes_and_files_are_errors():
    with pytest.raises(psco.InputError, match="did you mean 'omniglot'"):
        psco.load_recipe("omniglt")
    with pytest.raises(psco.InputError, match=r"no recipe file 'none\.yaml'"):
        psco.load_recipe("none.yaml")


def test_naming_the_recipes_own_method_changes_nothing():
    own = psco.load_recipe("omniglot", with_flags(method="psco"))
    assert own == psco.load_recipe("omniglot")


def test_an_override_changes_an_option_of_the_method_that_a_flag_names():
    other = psco.load_recipe("omniglot", with_flags(["method.momentum=0.5"], method="moco")).method
    assert other.options == {
        "queue_size": 16384,
        "momentum": 0.5,
        "temperature": 0.2,
        "momentum_end": None,
        "filled_queue": False,
    }
