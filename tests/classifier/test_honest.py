"""What keeps results honest: the choice of the rule, left-out groups, safe tables."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import psco
from psco.classifier.assessment import Assessment, group_names
from psco.classifier.features import embed_features
from psco.classifier.left_out import LeftOut, left_out_accuracy
from psco.classifier.model import Supports
from psco.classifier.results import (
    EmbeddedFiles,
    Row,
    check_feature_file,
    safe_cell,
    write_features,
    write_rows,
)
from psco.data.reading.listing import Listing
from psco.data.reading.source import FolderSource
from psco.evaluation.rules import Embeddings


def stretched(shots: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes that differ in one narrow direction only; class means do badly there."""
    random = np.random.default_rng(0)
    y = np.arange(2 * shots) % 2
    x = random.normal(size=(2 * shots, 2)) * [10.0, 0.1]
    x[:, 1] += y
    return x + np.array([0.0, 3.0]), np.array(["a", "b"])[y]


@pytest.mark.parametrize("shots", [1, 2])
def test_auto_is_prototype_at_one_and_two_shots(shots):
    x, y = stretched(shots)
    assert psco.FewShotClassifier(rule="auto").fit(x, y).rule_ == "prototype"


def test_auto_takes_another_rule_where_it_classifies_more_left_out_supports():
    x, y = stretched(20)
    classifier = psco.FewShotClassifier(rule="auto").fit(x, y)
    supports = Supports(embed_features(x), y, from_encoder=False)
    found = {
        rule: left_out_accuracy(supports, rule, None).correct
        for rule in ("prototype", "ridge", "logistic")
    }
    assert found[classifier.rule_] == max(found.values())
    assert classifier.rule_ != "prototype"


def test_a_saved_classifier_has_the_resolved_rule(tmp_path):
    x, y = stretched(20)
    classifier = psco.FewShotClassifier(rule="auto").fit(x, y)
    classifier.save(tmp_path / "a.psco")
    loaded = psco.FewShotClassifier.load(tmp_path / "a.psco")
    assert loaded.rule == loaded.rule_ == classifier.rule_
    assert (loaded.predict(x) == classifier.predict(x)).all()


def test_options_need_a_rule_of_their_own():
    x, y = stretched(5)
    with pytest.raises(psco.InputError, match="rule 'auto' takes no options, got k"):
        psco.FewShotClassifier(rule="auto", rule_options={"k": 3}).fit(x, y)


def test_left_out_accuracy_is_that_of_a_loop():
    x, y = stretched(6)
    supports = Supports(embed_features(x), y, from_encoder=False)
    model = psco.FewShotClassifier().fit(x, y).model  # for the standardisation of all supports
    prepared = model.prepared.features.numpy()
    right = 0
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        means = [prepared[rest & (y == name)].mean(axis=0) for name in ("a", "b")]
        nearest = np.argmin([((prepared[i] - mean) ** 2).sum() for mean in means])
        right += "ab"[nearest] == y[i]
    assert left_out_accuracy(supports, "prototype", None) == LeftOut(right, len(y))


def test_supports_of_one_group_are_never_on_both_sides():
    # Every group has one place and both labels at random: only its other pictures give it away.
    random = np.random.default_rng(0)
    places = random.normal(size=(10, 8)).repeat(2, axis=0)
    x = places + 0.001 * random.normal(size=places.shape)
    y = np.array(["a", "b"])[random.permutation(10) % 2].repeat(2)
    groups = np.arange(10).repeat(2)
    supports = Supports(embed_features(x), y, from_encoder=False)
    alone = left_out_accuracy(supports, "logistic", None)
    together = left_out_accuracy(supports, "logistic", None, groups)
    assert alone.accuracy >= 0.9
    assert together.total == 20
    assert together.accuracy < 0.75


def listing_of(*names: str) -> Listing:
    return Listing(FolderSource(Path()), names)


def test_groups_come_from_file_names_or_a_column(tmp_path):
    listing = listing_of("a/video1-3.png", "b/video12-4.png")
    assert group_names(listing, Path("x"), r"video(\d+)") == ["1", "12"]
    assert group_names(listing, Path("x"), r"^[ab]") == ["a", "b"]
    with pytest.raises(psco.InputError, match=r"matches nothing in 'a/video1-3\.png'"):
        group_names(listing, Path("x"), "patient")
    with pytest.raises(psco.InputError, match="is no regular expression"):
        group_names(listing, Path("x"), "(")
    table = tmp_path / "t.csv"
    table.write_text("path,label,patient\na/video1-3.png,a,P7\nb/video12-4.png,b,P9\n")
    assert group_names(listing, table, "patient") == ["P7", "P9"]


def test_a_baseline_that_is_as_good_is_a_warning():
    worse = Assessment(LeftOut(5, 10), {"pixels": LeftOut(5, 10)}, None)
    assert "no better than pixels" in worse.warnings[0]
    assert not Assessment(LeftOut(6, 10), {"pixels": LeftOut(5, 10)}, None).warnings
    (unknown,) = Assessment(LeftOut(0, 0), {"pixels": LeftOut(0, 0)}, None).warnings
    assert "the accuracy is unknown" in unknown


def test_a_class_in_one_group_only_is_not_counted():
    x, y = stretched(4)
    supports = Supports(embed_features(x), y, from_encoder=False)
    assert left_out_accuracy(supports, "prototype", None, groups=y).total == 0


def test_the_interval_is_wilsons():
    low, high = LeftOut(8, 10).interval
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=2e-4)
    assert LeftOut(0, 0).interval == (0.0, 1.0)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_text_that_a_spreadsheet_may_run_is_written_as_text(text, tmp_path):
    assert safe_cell(text) == f"'{text}"
    assert safe_cell("a=1") == "a=1"
    assert safe_cell(-1.5) == -1.5
    list(write_rows(tmp_path / "a.csv", [Row(text, "label", 0.5)]))
    list(write_rows(tmp_path / "raw.csv", [Row(text, "label", 0.5)], raw=True))
    with (
        (tmp_path / "a.csv").open(newline="") as safe,
        (tmp_path / "raw.csv").open(newline="") as raw,
    ):
        assert next(csv.DictReader(safe))["path"] == f"'{text}"
        assert next(csv.DictReader(raw))["path"] == text


def embedded() -> EmbeddedFiles:
    x = torch.tensor([[1.5, 2.0], [-3.0, 4.0]])
    return EmbeddedFiles(["=a.png", "b.png"], Embeddings(x, x, x), np.array(["p", "q"]), {})


def test_features_are_written_as_npy_and_csv(tmp_path):
    write_features(tmp_path / "x.npy", embedded())
    assert np.load(tmp_path / "x.npy").tolist() == [[1.5, 2.0], [-3.0, 4.0]]
    write_features(tmp_path / "x.csv", embedded())
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["path", "label", "f0", "f1"],
        ["'=a.png", "p", "1.5", "2.0"],
        ["b.png", "q", "-3.0", "4.0"],
    ]


def test_parquet_needs_pyarrow_and_other_names_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(psco.InputError, match="need pyarrow"):
        check_feature_file(Path("x.parquet"))
    with pytest.raises(psco.InputError, match=r"\.npz, \.npy, \.csv or \.parquet, not 'x\.txt'"):
        check_feature_file(Path("x.txt"))
