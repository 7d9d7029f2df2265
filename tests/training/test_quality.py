"""The quality of a network without labels: what is measured, and when; nothing else changes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import psco
from psco.ops.quality import alignment, effective_rank, retrieval_accuracy, uniformity
from psco.training.checkpoint import load_resume
from psco.training.collapse import run_warning
from psco.training.quality import QUALITY, quality_summary, quality_warning, read_quality


def train(pictures, out, tiny, **options):
    options = {"recipe": "glyphs", "overrides": tiny, "progress": False, **options}
    return psco.pretrain(pictures, out=out, **options)


def unit(n: int, d: int) -> torch.Tensor:
    return F.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(n + d)), dim=1)


def test_retrieval_counts_rows_whose_nearest_other_view_is_their_own():
    a, b = unit(7, 3), unit(7, 3).roll(1, dims=1)
    found = [max(range(7), key=lambda j: float(a[i] @ b[j])) == i for i in range(7)]
    assert retrieval_accuracy(a, b) == pytest.approx(sum(found) / 7)
    assert retrieval_accuracy(a, a) == 1


def test_embeddings_that_are_all_the_same_find_nothing_and_have_no_rank():
    same = F.normalize(torch.ones(5, 4), dim=1)
    assert retrieval_accuracy(same, same) == 0
    assert uniformity(same) == pytest.approx(0, abs=1e-6)
    assert effective_rank(same) == 0


def test_alignment_and_uniformity_are_those_of_plain_loops():
    a, b = unit(6, 4), unit(6, 5)[:, :4]
    squared = [float(((a[i] - b[i]) ** 2).sum()) for i in range(6)]
    assert alignment(a, b) == pytest.approx(sum(squared) / 6, rel=1e-5)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    mean = sum(np.exp(-2 * float(((a[i] - a[j]) ** 2).sum())) for i, j in pairs) / len(pairs)
    assert uniformity(a) == pytest.approx(np.log(mean), rel=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_the_effective_rank_is_the_number_of_equally_used_directions(rank):
    rows = torch.cat([torch.eye(rank, 8), -torch.eye(rank, 8)])
    assert effective_rank(rows) == pytest.approx(rank)


def test_a_run_has_the_same_bits_with_and_without_the_gauge(pictures, tmp_path, tiny):
    with_gauge = train(pictures, tmp_path / "a", tiny)
    without = train(pictures, tmp_path / "b", tiny, measure_quality=False)
    states = [load_resume(run.folder)["method"] for run in (with_gauge, without)]
    models = [load_file(run.folder / "model.safetensors") for run in (with_gauge, without)]
    for one, other in (states, models):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert with_gauge.quality
    assert not without.quality
    assert "retrieval" in with_gauge.metrics[-1]
    assert "retrieval" not in without.metrics[-1]


def test_a_run_is_measured_at_its_start_on_the_way_and_at_its_end(pictures, tmp_path, tiny):
    changes = [*tiny, "train.steps=8", "train.log_steps=1"]
    run = train(pictures, tmp_path / "run", changes)
    assert [row["step"] for row in run.quality] == [0, 2, 4, 6, 8]
    shown = [row["retrieval"] for row in run.metrics]
    measured = [row["retrieval"] for row in run.quality]
    assert shown == pytest.approx(
        [measured[0], *np.repeat(measured[1:4], 2), measured[4]], rel=1e-5
    )


def untimed(row: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in row.items() if name != "seconds"}


def test_a_resumed_run_has_the_measurements_of_an_undisturbed_one(pictures, tmp_path, tiny):
    changes = [*tiny, "train.steps=8", "train.log_steps=1"]
    whole = train(pictures, tmp_path / "whole", changes)
    calls = []

    def stop(row):
        calls.append(row)
        if len(calls) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(pictures, tmp_path / "run", changes, loggers=[stop], checkpoint_steps=3)
    resumed = train(pictures, tmp_path / "run", changes, resume=True)
    assert [untimed(row) for row in resumed.quality] == [untimed(row) for row in whole.quality]
    columns = ("step", "retrieval", "alignment", "uniformity", "effective_rank")
    curves = [[[row[name] for name in columns] for row in run.metrics] for run in (whole, resumed)]
    assert curves[0] == curves[1]


def test_methods_without_features_are_not_measured(few_glyphs, tmp_path, tiny):
    changes = [change for change in tiny if not change.startswith("method=")]
    run = train(few_glyphs, tmp_path / "run", changes, method="maml")
    assert run.quality == []
    assert "retrieval" not in run.metrics[-1]


def rows(*separation: float) -> list[dict[str, float]]:
    return [
        {"step": 10 * i, "seconds": 0.0, "retrieval": value / 10, "separation": value}
        for i, value in enumerate(separation)
    ]


def test_a_run_that_hardly_improved_is_reported_and_one_that_did_is_not():
    assert "hardly improved" in (quality_warning(rows(2.0, 2.01)) or "")
    assert quality_warning(rows(2.0, 1.5)) is not None
    assert quality_warning(rows(2.0, 1.5, 2.3)) is None
    assert quality_warning(rows(2.0)) is None


def test_the_summary_names_both_ends():
    assert quality_summary(rows(2, 1, 3)) == (
        "two views of a picture find each other in 30.0% of cases (20.0% at step 0), "
        "separation 3.00 (2.00)"
    )


def test_the_pages_of_a_run_show_the_warning(tmp_path):
    content = {"format": 1, "measurements": rows(2.0, 2.01)}
    (tmp_path / QUALITY).write_text(json.dumps(content))
    assert read_quality(tmp_path) == content["measurements"]
    assert "hardly improved" in (run_warning(tmp_path) or "")
