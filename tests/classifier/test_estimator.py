"""The few-shot classifier as a scikit-learn estimator, on features and on images."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from psco.classifier import FewShotClassifier
from psco.classifier.calibration import calibrate_run
from psco.classifier.metrics import expected_calibration_error
from psco.errors import InputError
from psco.evaluation.embed import Encoder, load
from psco.evaluation.rules import RULES, SupportSet
from psco.evaluation.rules.prototype import adapt_heads, project
from psco.ops.prototypes import prototypes
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.checkpoint import save_checkpoint, start_folder


@parametrize_with_checks([FewShotClassifier()])
def test_the_classifier_of_features_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture
def run(tmp_path, tiny):
    """Write a run folder with random weights; no predictor, so supports equal queries."""
    recipe = load_recipe("glyphs", [*tiny, "heads.predictor=false"])
    torch.manual_seed(0)
    start_folder(tmp_path / "run", recipe, {})
    save_checkpoint(tmp_path / "run", build_method(recipe), recipe, 0, {})
    return tmp_path / "run"


def patterns(number: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw (3 number, 20, 20) images: lines across, lines down, a blot; and their names."""
    random = np.random.default_rng(seed)
    images = random.integers(190, 256, (3, number, 20, 20)).astype(np.uint8)
    images[0, :, ::4] //= 4
    images[1, :, :, ::4] //= 4
    images[2, :, 5:15, 5:15] //= 4
    return images.reshape(-1, 20, 20), np.repeat(["across", "down", "blot"], number)


def blobs(number: int = 20, seed: int = 0, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Draw features (3 number, 6) of three classes."""
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), number)
    return 4 * np.eye(3, 6)[y] + random.normal(0, spread, size=(len(y), 6)), y


# --------------------------------------------------------------------------------------- images


def test_paths_pillow_images_arrays_and_tensors_are_classified_alike(run, tmp_path):
    images, labels = patterns(4)
    paths = [tmp_path / f"{number}.png" for number in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image).save(path)
    small = [
        np.asarray(Image.open(path).resize((16, 16), Image.Resampling.BICUBIC)) for path in paths
    ]
    kinds = [
        paths,
        [str(path) for path in paths],
        np.array([str(path) for path in paths]),
        [Image.open(path) for path in paths],
        list(images),
        np.stack(small),
        np.stack(small)[..., None],
        torch.from_numpy(np.stack(small)),
        torch.from_numpy(np.stack(small))[:, None],
        [torch.from_numpy(image) for image in images],
        [torch.from_numpy(image)[None] / 255 for image in images],
        [np.repeat(image[..., None], 3, axis=2) for image in images],
    ]
    first = FewShotClassifier(run, rule="class-mean").fit(paths, labels)
    assert first.score(paths, labels) == 1
    expected = first.predict_proba(paths)
    for kind in kinds:
        clf = FewShotClassifier(run, rule="class-mean").fit(kind, labels)
        assert np.allclose(clf.predict_proba(kind), expected, atol=0.02)


def test_new_images_are_recognised_and_fitted_attributes_are_set(run):
    images, labels = patterns(3)
    others, truth = patterns(30, seed=1)
    clf = FewShotClassifier(run, rule="class-mean").fit(images, labels)
    assert clf.score(others, truth) > 0.95
    assert clf.classes_.tolist() == ["across", "blot", "down"]
    assert clf.support_counts_.tolist() == [3, 3, 3]
    assert clf.prototypes_.shape == (3, 16)
    assert np.allclose(np.linalg.norm(clf.prototypes_, axis=1), 1)
    assert clf.n_features_in_ == load(run).features(images[..., None]).shape[1]
    assert clf.support_names_[:2] == ["#0", "#1"]
    assert clf.support_images_.shape == (9, 32, 32, 1)


def test_one_shot_and_unequal_shots_are_enough(run):
    images, labels = patterns(5)
    chosen = [0, 5, 6, 7, 10, 11]
    clf = FewShotClassifier(run, rule="class-mean").fit(images[chosen], labels[chosen])
    assert clf.support_counts_.tolist() == [1, 2, 3]
    clf.fit(images[::5], labels[::5])
    assert clf.support_counts_.tolist() == [1, 1, 1]
    assert np.allclose(clf.predict_proba(images).sum(axis=1), 1)


@pytest.mark.parametrize(
    "names", [["a", "b", "c"], [7, 3, 5], [0.5, 1.5, 1.0], [True, False, True], ["x", "é", "日本"]]
)
def test_labels_keep_their_type(run, names):
    images, _ = patterns(2)
    labels = np.repeat(np.array(names), 2)
    if labels.dtype.kind == "f":
        labels = labels.astype(object).astype(str)  # fractions are no classes to scikit-learn
    predicted = FewShotClassifier(run).fit(images, labels).predict(images)
    assert predicted.dtype == labels.dtype
    assert set(predicted) <= set(labels)


def test_partial_fit_gives_the_result_of_fitting_all_supports_at_once(run):
    images, labels = patterns(4)
    clf = FewShotClassifier(run).partial_fit(images[:6], labels[:6])
    assert clf.classes_.tolist() == ["across", "down"]
    clf.partial_fit(images[6:], labels[6:], classes=["across", "down", "blot"])
    whole = FewShotClassifier(run).fit(images, labels)
    assert clf.classes_.tolist() == whole.classes_.tolist()
    assert np.allclose(clf.predict_proba(images), whole.predict_proba(images), atol=1e-5)
    assert clf.support_names_ == whole.support_names_
    with pytest.raises(InputError, match="'blot', which is not in classes"):
        clf.partial_fit(images[-1:], labels[-1:], classes=["across", "down"])


WHOLE = {name for name in RULES if getattr(RULES[name](), "needs_pixels", False)}


@pytest.mark.parametrize("rule", sorted(WHOLE))
def test_rules_that_train_whole_networks_are_rejected(run, rule):
    images, labels = patterns(3)
    for encoder, X in ((run, images), (None, images.reshape(len(images), -1))):
        with pytest.raises(InputError, match=f"rule '{rule}' trains a whole network"):
            FewShotClassifier(encoder, rule=rule).fit(X, labels)


# Rules of one method, and those that read two blocks, work with psco evaluate only.
SPECIAL = {
    name
    for name in RULES
    if hasattr(RULES[name], "needs_method") or hasattr(RULES[name], "needs_previous")
}


@pytest.mark.parametrize("rule", sorted(SPECIAL))
def test_rules_that_a_classifier_cannot_use_say_so(run, rule):
    images, labels = patterns(3)
    with pytest.raises(InputError, match=f"rule '{rule}' "):
        FewShotClassifier(run, rule=rule).fit(images, labels).predict(images)


@pytest.mark.parametrize("rule", sorted(set(RULES) - WHOLE - SPECIAL))
def test_every_other_rule_classifies_images_and_features(run, rule):
    images, labels = patterns(3)
    chances = FewShotClassifier(run, rule=rule, random_state=0).fit(images, labels)
    assert np.allclose(chances.predict_proba(images).sum(axis=1), 1)
    if rule == "adapt":
        return
    X, y = blobs()
    clf = FewShotClassifier(rule=rule, random_state=0).fit(X[::4], y[::4])
    assert clf.score(X, y) > 0.9


def test_heads_are_adapted_once_in_fit_and_the_encoder_is_unchanged(run):
    images, labels = patterns(4)
    encoder = load(run)
    before = {name: value.clone() for name, value in encoder.method.state_dict().items()}
    plain = FewShotClassifier(encoder).fit(images, labels)
    clf = FewShotClassifier(encoder, adapt_steps=5, reject_below="auto").fit(images, labels)
    after = encoder.method.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not np.allclose(clf.prototypes_, plain.prototypes_)
    assert clf.model.adapted is not None
    assert np.array_equal(clf.predict_proba(images), clf.predict_proba(images))
    same = FewShotClassifier(encoder, rule="adapt", rule_options={"steps": 5}).fit(images, labels)
    assert np.array_equal(same.prototypes_, clf.prototypes_)


@pytest.mark.parametrize("predictor", [True, False])
def test_adapted_heads_score_as_the_rule_adapt_does(run, tiny, predictor):
    images, _ = patterns(4)
    recipe = load_recipe("glyphs", [*tiny, f"heads.predictor={predictor}"])
    encoder = Encoder.untrained(recipe)
    embeddings, truth = encoder.embed(images[..., None]), torch.arange(3).repeat_interleave(4)
    own = project(embeddings.features, adapt_heads(embeddings.features, truth, encoder.heads, 7))
    scores = own.query @ prototypes(own.support, truth, 3).T
    one = torch.arange(12)[None]
    rule = RULES["adapt"](steps=7)
    expected = rule(SupportSet(embeddings[one], truth[None], 3, encoder.heads), embeddings[one])[0]
    assert torch.allclose(scores, expected, atol=1e-4)


def test_adapting_needs_at_least_two_supports(run):
    images, labels = patterns(1)
    clf = FewShotClassifier(run, adapt_steps=2)
    assert clf.fit(images[:2], labels[:2]).predict(images).shape == (3,)
    with pytest.raises(InputError, match="at least 2 supports"):
        FewShotClassifier(run, adapt_steps=2).partial_fit(images[:1], labels[:1])


@pytest.mark.parametrize("bare", [True, False])
def test_fit_rejects_a_single_class_and_partial_fit_accepts_it(run, bare):
    images, _ = patterns(2)
    X, clf = (np.eye(6), FewShotClassifier()) if bare else (images, FewShotClassifier(run))
    for label in ("same", 7, True):
        with pytest.raises(InputError, match=f"y has 1 class, {label!r}; .* at least 2"):
            clf.fit(X[:2], [label, label])
    with pytest.raises(InputError, match="y has 1 class, 'only'"):
        clf.fit(X[:1], ["only"])
    assert clf.partial_fit(X[:2], ["same", "same"]).predict(X[2:4]).tolist() == ["same"] * 2
    assert clf.partial_fit(X[2:4], ["new", "new"]).classes_.tolist() == ["new", "same"]


# ---------------------------------------------------------------------------------- scikit-learn


def test_pipelines_searches_and_cross_validation_work_on_features():
    X, y = blobs()
    pipeline = make_pipeline(StandardScaler(), FewShotClassifier())
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.9
    search = GridSearchCV(
        FewShotClassifier(), {"temperature": ["auto", 5.0]}, cv=3, scoring="neg_log_loss"
    )
    assert search.fit(X, y).best_params_ == {"temperature": "auto"}


def test_cross_validation_works_on_lists_of_images(run):
    images, labels = patterns(4)
    pictures = [Image.fromarray(image) for image in images]
    scores = cross_val_score(FewShotClassifier(run, rule="class-mean"), pictures, labels, cv=2)
    assert scores.min() > 0.9


def test_cloning_keeps_the_parameters_and_setting_them_is_checked_only_in_fit(run):
    clf = FewShotClassifier(str(run), reject_below="auto", rule_options={"k": 3})
    assert clone(clf).get_params() == clf.get_params()
    assert isinstance(clone(FewShotClassifier(load(run))).encoder, type(load(run)))


def test_a_pickle_holds_the_path_of_the_encoder_and_not_its_weights(run):
    images, labels = patterns(3)
    clf = FewShotClassifier(str(run)).fit(images, labels)
    content = pickle.dumps(clf)
    again = pickle.loads(content)
    assert again.encoder == str(run)
    assert len(content) < len(pickle.dumps(clf.network)) / 2
    assert np.array_equal(again.predict_proba(images), clf.predict_proba(images))
    assert np.array_equal(copy.deepcopy(clf).predict(images), clf.predict(images))
    own = pickle.loads(pickle.dumps(FewShotClassifier(load(run)).fit(images, labels)))
    assert np.array_equal(own.predict_proba(images), clf.predict_proba(images))


def test_two_classes_have_one_score_and_more_have_one_each():
    X, y = blobs()
    assert FewShotClassifier().fit(X, y).decision_function(X).shape == (60, 3)
    two = FewShotClassifier().fit(X[:40], y[:40])
    scores = two.decision_function(X[:40])
    assert scores.shape == (40,)
    assert np.array_equal(scores > 0, two.predict(X[:40]) == 1)


def test_features_can_be_shifted_and_scaled_without_effect():
    X, y = blobs()
    plain = FewShotClassifier().fit(X, y).predict_proba(X)
    assert np.allclose(
        FewShotClassifier().fit(X * 1e3 + 1e4, y).predict_proba(X * 1e3 + 1e4), plain
    )


# ------------------------------------------------------------------------------------ confidence


def test_probabilities_of_features_are_calibrated():
    X, y = blobs(15, spread=1.8)
    others, truth = blobs(1000, seed=1, spread=1.8)
    clf = FewShotClassifier().fit(X, y)
    chances = clf.predict_proba(others)
    right = clf.predict(others) == truth
    assert expected_calibration_error(chances.max(axis=1), right) < 0.06
    cold = FewShotClassifier(temperature=1e-3).fit(X, y).predict_proba(others)
    assert expected_calibration_error(cold.max(axis=1), right) > 0.1


def test_one_shot_uses_the_temperature_of_the_run_and_more_shots_change_it(run, pictures):
    images, labels = patterns(6)
    guessed = FewShotClassifier(run).fit(images[::6], labels[::6]).temperature_
    known = calibrate_run(run, pictures)
    clf = FewShotClassifier(run).fit(images[::6], labels[::6])
    assert clf.temperature_ == pytest.approx(known.temperature_for(3))
    assert clf.temperature_ != guessed
    assert FewShotClassifier(run).fit(images, labels).temperature_ != clf.temperature_
    assert FewShotClassifier(run, temperature=0.5).fit(images, labels).temperature_ == 0.5


def test_the_random_state_decides_which_of_many_supports_are_left_out():
    X, y = blobs(200)
    one, same, other = (FewShotClassifier(random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert one.temperature_ == same.temperature_ != other.temperature_
    assert one.temperature_ == pytest.approx(other.temperature_, rel=0.5)


def test_foreign_images_and_few_genuine_ones_become_unknown():
    X, y = blobs(30)
    foreign = np.random.default_rng(5).normal(size=(200, 6)) - 6
    genuine, truth = blobs(300, seed=1)
    clf = FewShotClassifier(reject_below="auto").fit(X, y)
    assert (clf.predict(foreign) == "unknown").mean() > 0.95
    predicted = clf.predict(genuine)
    assert predicted.dtype == object
    assert 0.01 < (predicted == "unknown").mean() < 0.12
    assert clf.score(genuine, truth) > 0.85
    assert clf.predict(X[:1]).tolist() == [0]
    names = np.array(["ab", "cd", "ef"])
    words = FewShotClassifier(reject_below="auto").fit(X, names[y]).predict(foreign)
    assert words.dtype.kind == "U"
    assert set(words) == {"unknown"}


def test_a_number_rejects_predictions_with_a_lower_probability():
    X, y = blobs()
    clf = FewShotClassifier(reject_below=0.9).fit(X, y)
    sure = clf.predict_proba(X).max(axis=1) >= 0.9
    assert np.array_equal(clf.predict(X) != "unknown", sure)
    assert clf.threshold_ == 0.9


def test_an_encoder_loaded_from_a_run_has_its_calibration(run, pictures):
    images, labels = patterns(1)
    known = calibrate_run(run, pictures)
    clf = FewShotClassifier(load(run), reject_below="auto").fit(images, labels)
    assert clf.temperature_ == pytest.approx(known.temperature_for(3))
    assert clf.threshold_ == pytest.approx(known.similarity_for(3)[1])
    fresh = Encoder.untrained(load(run).recipe)
    assert fresh.folder is None
    assert FewShotClassifier(fresh).fit(images, labels).temperature_ != clf.temperature_


def test_one_shot_rejects_by_the_calibration_of_the_run(run, pictures):
    images, labels = patterns(1)
    with pytest.raises(InputError, match="got 0 supports to leave out"):
        FewShotClassifier(run, reject_below="auto").fit(images, labels)
    known = calibrate_run(run, pictures)
    clf = FewShotClassifier(run, reject_below="auto").fit(images, labels)
    assert clf.threshold_ == pytest.approx(known.similarity_for(3)[1])


# ------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"rule": "prototipe"}, "unknown rule 'prototipe'; did you mean 'prototype'"),
        ({"rule_options": {"kk": 1}}, "unknown option of rule 'prototype' 'kk'"),
        ({"temperature": 0}, "temperature must be 'auto' or a number > 0, not 0"),
        ({"temperature": "warm"}, "not 'warm'"),
        ({"reject_below": 1.5}, r"in \[0, 1\], not 1.5"),
        ({"reject_below": "never"}, "not 'never'"),
        ({"adapt_steps": -1}, ">= 0, got -1"),
        ({"adapt_steps": 5, "rule": "class-mean"}, "requires the rule 'adapt', got 'class-mean'"),
        ({"adapt_steps": 5}, "no heads to adapt"),
        ({"rule": "adapt"}, "no heads to adapt"),
        ({"encoder": 3}, "an Encoder or None, not 3"),
        ({"encoder": "no/such/run"}, "is not a run folder"),
    ],
)
def test_a_wrong_parameter_gives_an_error_of_one_line(parameters, words):
    X, y = blobs(3)
    with pytest.raises(InputError, match=words) as caught:
        FewShotClassifier(**parameters).fit(X, y)
    assert "\n" not in str(caught.value)


def test_features_that_are_not_finite_are_counted():
    X, y = blobs(3)
    X[[2, 5], 1] = np.nan, np.inf
    with pytest.raises(InputError, match=r"2 of 9 rows of X contain NaN or infinity.*row 2"):
        FewShotClassifier().fit(X, y)
    clf = FewShotClassifier().fit(*blobs(3))
    with pytest.raises(InputError, match="2 of 9 rows"):
        clf.predict(X)


def test_images_and_labels_that_do_not_match_are_rejected(run, tmp_path):
    images, labels = patterns(2)
    clf = FewShotClassifier(run)
    with pytest.raises(InputError, match="same length, got 6 and 5"):
        clf.fit(images, labels[:5])
    with pytest.raises(InputError, match="0 images"):
        clf.fit([], [])
    with pytest.raises(InputError, match="0 images"):
        clf.fit(images[:0], [])
    with pytest.raises(InputError, match="a list of images, not a single str; pass"):
        clf.fit("a.png", ["a"])
    with pytest.raises(InputError, match=r"numbers of shape \(6, 4\)"):
        clf.fit(np.zeros((6, 4)), labels)
    with pytest.raises(InputError, match=r"values from .* to 255.0 of type float64; they must"):
        clf.fit(images.astype(float), labels)
    with pytest.raises(InputError, match="no such file"):
        clf.fit([tmp_path / "none.png"], ["a"])
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"bad.png.*it is not PNG"):
        clf.fit([tmp_path / "bad.png"], ["a"])
    with pytest.raises(InputError, match="item 0 of list is of type int"):
        clf.fit([1, 2], ["a", "b"])
    with pytest.raises(InputError, match="requires y"):
        clf.fit(images, None)
    with pytest.raises(InputError, match="Unknown label type"):
        clf.fit(images, np.linspace(0, 1, 6))
    with pytest.raises(InputError, match="device 'abacus' is not available"):
        FewShotClassifier(run, device="abacus").fit(images, labels)


def test_rejection_needs_classes_that_are_not_called_unknown():
    X, y = blobs(3)
    names = np.array(["known", "unknown", "other"])[y]
    assert "unknown" in FewShotClassifier().fit(X, names).predict(X)
    with pytest.raises(InputError, match="a class is called 'unknown'"):
        FewShotClassifier(reject_below=0.5).fit(X, names)


@pytest.mark.parametrize("rule", ["prototype", "ridge", "logistic", "knn"])
@pytest.mark.parametrize("size", [1e-200, 1e200, 1.7e308])
def test_features_of_any_finite_size_give_probabilities(rule, size):
    X = np.array([[1.0, 0.2], [0.9, 0.1], [-1.0, 0.3], [-0.8, 0.4]])
    usual = FewShotClassifier(rule=rule).fit(X, list("aabb")).predict_proba(X)
    clf = FewShotClassifier(rule=rule).fit(size * X, list("aabb"))
    assert clf.predict_proba(size * X) == pytest.approx(usual, abs=1e-6)
    for far in (1.7e308, -1.7e308, 0.0):
        assert clf.predict_proba([[far, -far]]).sum() == pytest.approx(1)


def test_a_query_far_from_small_supports_gets_probabilities():
    clf = FewShotClassifier(reject_below="auto").fit(np.eye(4), list("aabb"))
    chances = clf.predict_proba(np.array([[1e200, 0, 0, 0], [-1e300, 1e300, 0, 0]]))
    assert np.isfinite(chances).all()
    assert chances.sum(axis=1) == pytest.approx(1)
