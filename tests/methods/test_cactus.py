"""CACTUs: codes, partitions and their refit rule, tasks from clusters, exact resume, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import adjusted_rand_score

from psco.data import ImageSet
from psco.errors import InputError, PscoError
from psco.methods import partitions as partitions_module
from psco.methods.encoding import encoding_stage
from psco.methods.partitions import Partitions, is_balanced
from psco.methods.stages import StageInputs
from psco.networks.image_format import ImageFormat
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe
from psco.training.trainer import Trainer

SIZE = 16
COMMON = [f"image.size={SIZE}", f"image.source_size={SIZE}", "train.purity=false"]
STAGES = ["method.encoder_epochs=0.3", "method.clusters=6", "method.partitions=3"]
TASKS = ["method.ways=3", "method.shots=1", "method.queries=2", "train.steps=4"]


@pytest.fixture(scope="module")
def images():
    """Return 240 noisy pictures of eight patterns, in random order."""
    random = np.random.default_rng(0)
    patterns = random.integers(0, 2, (8, 4, 4)).repeat(4, 1).repeat(4, 2)
    kinds = random.permutation(np.arange(240) % 8)
    pixels = 200 * patterns[kinds] + random.integers(0, 55, (240, SIZE, SIZE))
    return ImageSet(pixels.astype(np.uint8)[..., None], kinds, tuple("abcdefgh"), "patterns")


def train(images, out, method, *more, stop=None):
    settings = [f"method.name={method}", *COMMON, *STAGES, *TASKS, *more]
    quiet = {"progress": False, "measure_quality": False}
    return Trainer(images, out, "glyphs", settings, resume=True, stop=stop, **quiet).run()


def inputs_of(images, **artefacts):
    return StageInputs(images.images, ImageFormat(SIZE, 1, (0.5,), (0.25,)), 0, artefacts)


def finish(stage, inputs):
    torch.manual_seed(0)
    for unit in range(stage.start(inputs)):
        stage.advance(unit)
    return stage.artefact()


def networks():
    return build_method(load_recipe("glyphs", ["method.name=moco", *COMMON]))


@pytest.mark.parametrize("encoder", ["acai", "pixels", "moco"])
def test_every_encoder_finds_patterns_that_k_means_can_tell_apart(images, encoder):
    inputs = inputs_of(images)
    codes = finish(encoding_stage(encoder, networks(), 3.0), inputs)["codes"]
    assert codes.shape[0] == len(images)
    clusters = Partitions(8, 1, members=3, ways=3)
    found = finish(clusters, inputs_of(images, encode={"codes": codes}))["labels"][0].numpy()
    kept = found >= 0
    score = adjusted_rand_score(images.labels[kept], found[kept])
    # Whitening also amplifies the noise, so pixels are the worst of the three.
    assert score > {"acai": 0.6, "pixels": 0.2, "moco": 0.2}[encoder]


def test_whitened_pixels_have_no_correlation_and_variance_one(images):
    codes = finish(encoding_stage("pixels", networks(), 1.0), inputs_of(images))["codes"].double()
    covariance = torch.cov(codes.T, correction=0)
    torch.testing.assert_close(covariance, torch.eye(len(covariance)).double(), atol=0.02, rtol=0.0)


@pytest.mark.parametrize(
    ("sizes", "fits"),
    [([9, 9, 9, 9], True), ([9, 9, 9, 6], False), ([7] * 4, True), ([9] * 7 + [1], True)],
)
def test_more_than_three_quarters_of_the_clusters_need_more_than_k_plus_q_images(sizes, fits):
    large = 0
    for size in sizes:
        if size > 6:
            large += 1
    assert (large / len(sizes) > 0.75) is fits
    assert is_balanced(np.array(sizes), 6) is fits


def test_a_partition_is_fitted_again_until_it_is_balanced_and_small_clusters_are_dropped(
    monkeypatch,
):
    first = np.array([0] * 17 + [1, 2, 3])
    second = np.array([0] * 5 + [1] * 6 + [2] * 6 + [3] * 2 + [4])  # 3 of 5 are large
    third = np.array([0] * 5 + [1] * 5 + [2] * 5 + [3] * 4 + [4])  # 4 of 5
    fits, seeds = iter([first, second, third]), []

    def fit(codes, clusters, seed):
        assert clusters == 5
        seeds.append(seed)
        return next(fits)

    monkeypatch.setattr(partitions_module, "kmeans_labels", fit)
    stage = Partitions(5, 1, members=3, ways=2)
    codes = {"codes": torch.randn(20, 4)}
    stage.start(StageInputs(np.zeros((20, 8, 8, 1), np.uint8), None, 0, {"encode": codes}))
    stage.advance(0)
    assert stage.artefact()["labels"].tolist() == [[*third[:19].tolist(), -1]]
    assert len(set(seeds)) == 3


def test_the_first_partition_takes_the_codes_and_the_others_rescaled_ones(monkeypatch):
    seen = []

    def fit(codes, clusters, _seed):
        seen.append(codes)
        return np.arange(len(codes)) % clusters

    monkeypatch.setattr(partitions_module, "kmeans_labels", fit)
    codes = torch.rand(40, 3) + 1
    stage = Partitions(4, 3, members=3, ways=2)
    finish(
        stage, StageInputs(np.zeros((40, 8, 8, 1), np.uint8), None, 0, {"encode": {"codes": codes}})
    )
    np.testing.assert_array_equal(seen[0], codes.numpy())
    for scaled in seen[1:]:
        factors = scaled / codes.numpy()
        np.testing.assert_allclose(factors, np.tile(factors[0], (40, 1)), rtol=1e-5)
        assert ((factors >= 0) & (factors < 1)).all()
    assert not np.array_equal(seen[1], seen[2])


def test_random_clusters_have_equal_sizes_and_differ_between_partitions(images):
    inputs = inputs_of(images)
    codes = finish(encoding_stage("random", networks(), 1.0), inputs)
    labels = finish(Partitions(7, 2, 3, 3), inputs_of(images, encode=codes))["labels"].numpy()
    sizes = np.bincount(labels[0])
    assert sizes.max() - sizes.min() <= 1
    assert (labels[0] != labels[1]).any()


@pytest.mark.parametrize("method", ["cactus-maml method.tasks=2", "cactus-protonets"])
def test_tasks_come_from_the_clusters_of_one_partition(images, tmp_path, method):
    settings = [*f"method.name={method}".split(), *COMMON, *STAGES, *TASKS, "method.encoder=pixels"]
    trainer = Trainer(images, tmp_path / "run", "glyphs", settings, progress=False)
    trainer.run()
    labels = load_file(tmp_path / "run/stages/partition.safetensors")["labels"].numpy()
    assert labels.shape == (3, len(images))
    feed, episode = trainer.loop.feed, trainer.loop.method.module.episode
    for number in range(5):
        drawn = feed.indices(number).reshape(episode.tasks, 3, 3)  # (T, N, K + Q)
        for task in drawn:
            fits = [
                all(len(set(row)) == 1 and row[0] >= 0 for row in found.tolist())
                and len({row[0] for row in found.tolist()}) == 3
                for found in labels[:, task]
            ]
            assert any(fits)


def stop_after(calls):
    left = iter(range(calls))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("encoder", ["acai", "moco", "pixels"])
def test_a_run_stopped_in_each_stage_ends_with_the_same_bits(images, tmp_path, encoder):
    chosen = f"method.encoder={encoder}"
    more = (chosen, "method.encoder_epochs=0.7")  # two steps of ACAI
    train(images, tmp_path / "whole", "cactus-protonets", *more)
    for calls in (1, 3):
        out = tmp_path / f"{calls}"
        train(images, out, "cactus-protonets", *more, stop=stop_after(calls))
        assert train(images, out, "cactus-protonets", *more).finished
        for name in ("encode", "partition"):
            file = f"stages/{name}.safetensors"
            assert (out / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
        one, other = (load_file(p / "model.safetensors") for p in (out, tmp_path / "whole"))
        assert all(torch.equal(one[name], other[name]) for name in other)


def test_more_clusters_than_images_are_refused_before_anything_is_written(images, tmp_path):
    message = r"at most the 240 images, got 300; try --set method.clusters=20"
    with pytest.raises(InputError, match=message):
        train(images, tmp_path / "run", "cactus-maml", "method.clusters=300")
    assert not (tmp_path / "run").exists()


def test_tasks_with_more_shots_than_clusters_can_have_are_refused(images, tmp_path):
    message = r"75 % of 6 clusters must have more than 60 images, which takes 305 images, got 240"
    with pytest.raises(InputError, match=message):
        train(images, tmp_path / "run", "cactus-protonets", "method.queries=59")
    assert not (tmp_path / "run").exists()


def test_more_ways_than_clusters_are_refused(images, tmp_path):
    with pytest.raises(InputError, match="clusters must be at least 14 for tasks of 10 ways"):
        train(images, tmp_path / "run", "cactus-protonets", "method.ways=10")


def test_partitions_that_never_balance_are_reported_and_the_codes_stay(tmp_path):
    pixels = np.zeros((200, SIZE, SIZE, 1), dtype=np.uint8)
    pixels[:20] = np.random.default_rng(0).integers(0, 255, (20, SIZE, SIZE, 1))
    lopsided = ImageSet(pixels, name="lopsided")
    message = r"partition 1: only \d of 20 clusters have more than 3 images after 10 fits"
    more = ("method.encoder=pixels", "method.clusters=20")
    with pytest.raises(PscoError, match=message + r".*try --set method.clusters=16"):
        train(lopsided, tmp_path / "run", "cactus-protonets", *more)
    names = sorted(path.name for path in (tmp_path / "run/stages").iterdir())
    assert names == ["encode.safetensors"]


def test_unknown_encoders_and_bad_numbers_are_refused(images, tmp_path):
    for setting, message in {
        "method.encoder=vae": "encoder",
        "method.encoder_epochs=0": "encoder_epochs must be > 0, got 0",
        "method.partitions=0": "partitions must be at least 1, got 0",
    }.items():
        with pytest.raises(InputError, match=message):
            train(images, tmp_path / "run", "cactus-protonets", setting)
