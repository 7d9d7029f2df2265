"""Data from which nothing can be learned: training stays finite, or stops with a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import psco
from psco.classifier.calibration import read_calibration
from psco.methods import METHODS
from psco.methods.base import embedding_std
from psco.training.collapse import MIN_EMBEDDING_STD, PATIENCE, collapse_warning, collapse_watch
from psco.training.feed import Feed
from psco.training.logging import read_metrics

NOISE = np.random.default_rng(0).integers(0, 256, (60, 20, 20, 1), dtype=np.uint8)
SETS = {
    "black": np.zeros_like(NOISE),
    "grey": np.full_like(NOISE, 128),
    "one shade each": np.broadcast_to(NOISE[:, :1, :1], NOISE.shape).copy(),
    "one picture": np.repeat(NOISE[:1], 60, axis=0),
}
TRAINED = [name for name in METHODS if METHODS[name].kind != "baseline"]
GENERATED = [name for name in TRAINED if name.startswith("lasium")]
WITH_ADAM = [*GENERATED, "meta-gmvae", "meta-svebm"]  # whose losses are sums over the pixels


def plain(images: torch.Tensor) -> torch.Tensor:
    return images[:, :, 2:18, 2:18].float() / 255


def train(images, out, tiny, method="psco", **options) -> psco.Run:
    labelled = psco.ImageSet(images, np.arange(len(images)) % 4, tuple("abcd"))
    overrides = [setting for setting in tiny if not setting.startswith("method=")]
    ways = ", ways: 4" if method in ("protonets", "maml", "umtra") else ""
    queue = ", queue_size: 50" if method in ("psco", "psco-byol", "moco") else ""
    quick = ", generator_steps: 2, generator_width: 4" if method in GENERATED else ""
    if method.startswith("cactus"):  # k-means cannot divide images that do not differ
        quick = ", encoder: random, clusters: 6, partitions: 1, ways: 4, queries: 2"
    overrides += [f"method={{name: {method}{ways}{queue}{quick}}}", "train.purity=false"]
    if method in WITH_ADAM:
        overrides += ["train.optimizer=adam", "train.learning_rate=0.001"]
    overrides += options.pop("overrides", [])
    return psco.pretrain(
        labelled, out=out, recipe="glyphs", overrides=overrides, progress=False, **options
    )


def is_finite(run: psco.Run) -> bool:
    weights = psco.load(run.folder).method.state_dict().values()
    numbers = [value for row in run.metrics for value in row.values()]
    return all(map(math.isfinite, numbers)) and all(bool(w.isfinite().all()) for w in weights)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("method", TRAINED)
def test_every_method_stays_finite_on_images_that_do_not_differ(name, method, tmp_path, tiny):
    changes = ["train.steps=8", "train.log_steps=4"]
    if method in GENERATED and name == "one shade each":  # the only images here that differ
        with pytest.raises(psco.PscoError, match="the generator has collapsed"):
            train(SETS[name], tmp_path / "run", tiny, method, overrides=changes)
        return
    run = train(SETS[name], tmp_path / "run", tiny, method, overrides=changes, views=(plain, plain))
    assert run.steps == 8
    assert is_finite(run)


@pytest.mark.parametrize("name", ["black", "one picture"])
def test_views_and_calibration_stay_finite_on_images_that_do_not_differ(name, tmp_path, tiny):
    run = train(SETS[name], tmp_path / "run", tiny)
    assert is_finite(run)
    found = read_calibration(run.folder)
    assert found is not None
    flat = [value for value in found.as_dict().values() if isinstance(value, float)]
    assert all(map(math.isfinite, flat))


@pytest.mark.parametrize("method", ["psco", "moco", "byol", "swav"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_views_that_are_not_finite_stop_training_and_are_blamed(value, method, tmp_path, tiny):
    def view(images: torch.Tensor) -> torch.Tensor:
        view = plain(images)
        view[3, 0, 5, 5] = value
        return view

    with pytest.raises(psco.PscoError, match=r"not finite at step 0 .* its views contain values"):
        train(NOISE, tmp_path / "run", tiny, method, views=(view, view))
    assert not (tmp_path / "run" / "resume.pt").exists()


def test_every_part_of_an_accumulated_step_is_checked(tmp_path, tiny):
    first = Feed(psco.ImageSet(NOISE), 16, seed=0).indices(0)[0]
    marked = NOISE.copy()
    marked[first] = 255

    def view(images: torch.Tensor) -> torch.Tensor:
        white = images.float().mean(dim=(1, 2, 3), keepdim=True) == 255
        return plain(images).masked_fill(white, math.nan)

    changes = ["train.accumulate=2", "train.batch_size=16"]
    with pytest.raises(psco.PscoError, match=r"not finite at step 0 .* its views contain values"):
        train(marked, tmp_path / "run", tiny, "simclr", overrides=changes, views=(view, view))


def test_a_learning_rate_that_is_too_high_is_not_blamed_on_the_views(tmp_path, tiny):
    changes = ["train.learning_rate=1e30", "method.auxiliary=none"]
    with pytest.raises(psco.PscoError, match=r"not finite at step .* try a lower train.learning"):
        train(NOISE, tmp_path / "run", tiny, overrides=changes)


def test_fewer_images_than_a_batch_are_refused_with_a_batch_size_that_fits(tmp_path, tiny):
    with pytest.raises(psco.InputError, match=r"larger than the data set of 9 .*batch_size=4"):
        train(NOISE[:9], tmp_path / "run", tiny)
    assert not (tmp_path / "run").exists()
    run = train(NOISE[:9], tmp_path / "run", tiny, overrides=["train.batch_size=4"])
    assert is_finite(run)


# -------------------------------------------------------------------------------- collapse watch


def test_the_embedding_std_is_1_for_an_even_distribution_and_0_for_one_point():
    normal = torch.randn(4096, 64, generator=torch.Generator().manual_seed(0))
    even = torch.nn.functional.normalize(normal, dim=1)
    assert embedding_std(even).item() == pytest.approx(1, abs=0.01)
    assert embedding_std(even[:1].expand(100, 64)) == 0
    assert embedding_std(even[:1]) == 0
    near = torch.nn.functional.normalize(even[:1] + 0.01 * even, dim=1)
    assert embedding_std(near).item() == pytest.approx(0.01, rel=0.05)


def test_the_embedding_std_is_that_of_plain_loops():
    q = torch.nn.functional.normalize(torch.randn(7, 5), dim=1).tolist()
    deviations = []
    for column in zip(*q, strict=True):
        mean = sum(column) / 7
        deviations.append(math.sqrt(sum((x - mean) ** 2 for x in column) / 7))
    expected = math.sqrt(5) * sum(deviations) / 5
    assert embedding_std(torch.tensor(q)).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", [name for name in TRAINED if name not in GENERATED])
def test_methods_that_embed_log_their_embedding_std(method, tmp_path, tiny):
    run = train(NOISE, tmp_path / "run", tiny, method, views=(plain, plain))
    assert all(("embedding_std" in row) == METHODS[method].has_features for row in run.metrics)
    if METHODS[method].has_features:
        assert all(MIN_EMBEDDING_STD < row["embedding_std"] < 1.01 for row in run.metrics)


def curve(*values: float) -> list[dict[str, float]]:
    return [{"step": 10.0 * n, "embedding_std": value} for n, value in enumerate(values, 1)]


def test_only_a_lasting_collapse_is_reported():
    low = [0.05] * PATIENCE
    assert "below 0.1 since step 20 or earlier" in collapse_warning(curve(0.5, *low))
    assert collapse_warning(curve(*low[:-1])) is None
    assert collapse_warning(curve(*low[:-1], 0.3)) is None
    assert collapse_warning(curve(*low, 0.3)) is None
    assert collapse_warning([{"step": 1.0, "total": 2.0}] * 9) is None  # runs of earlier versions


def test_the_watch_warns_once(capsys):
    watch = collapse_watch()
    for row in curve(0.9, *[0.01] * 20):
        watch(row)
    assert capsys.readouterr().err.count("warning: the embeddings have collapsed") == 1


def test_a_collapse_appears_on_stderr_in_the_curves_and_on_the_page(tmp_path, tiny, capsys):
    from psco.evaluation.evaluate import draw_tasks, evaluate_tasks
    from psco.report.evaluated import evaluation_page

    run = train(SETS["black"], tmp_path / "run", tiny)
    assert capsys.readouterr().err.count("warning: the embeddings have collapsed") == 1
    assert [row["embedding_std"] for row in read_metrics(run.folder / "metrics.csv")] == [0] * 6
    model = psco.load(run.folder)
    images = psco.ImageSet(NOISE, np.arange(60) % 4, tuple("abcd"))
    drawn = draw_tasks(images, [(2, 1)], 3, 5, 0)
    reports = evaluate_tasks(model, images, drawn, "prototype")
    page = evaluation_page(model, images, drawn, reports, "run")
    assert page.count('<p class="warning">Warning: the embeddings have collapsed') == 1
    (run.folder / "metrics.csv").write_text("step,check\n1,2\n")
    page = evaluation_page(model, images, drawn, reports, "run")
    assert "metrics.csv is damaged or cut short" in page
