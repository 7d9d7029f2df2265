"""LASIUM: latents of a class, translation, the generator's stage, and generated tasks."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from latent_tasks import IMAGE, images
from safetensors.torch import load_file
from torch import nn

import psco
from psco.data import ImageSet
from psco.errors import InputError, PscoError
from psco.methods import METHODS, Batch, Episode
from psco.methods.generators import (
    GeneratorStage,
    TaskGenerator,
    build_generator,
    check_spread,
    class_latents,
    draw_anchors,
    translate,
)
from psco.methods.stages import StageInputs
from psco.networks import Networks
from psco.training.trainer import Trainer


def test_noise_and_random_latents_move_the_members_of_a_class_and_keep_its_anchor():
    anchors = torch.randn(2, 3, 4)
    torch.manual_seed(0)
    noisy = class_latents(anchors, 5, "noise", 0.5)
    torch.manual_seed(0)
    mixed = class_latents(anchors, 5, "random-out-of-class", 0.4)
    torch.manual_seed(0)
    noise = torch.empty(2, 3, 4, 4).normal_()
    for latents in (noisy, mixed):
        assert latents.shape == (2, 3, 5, 4)
        assert torch.equal(latents[:, :, 0], anchors)
    for t, n, j in np.ndindex(2, 3, 4):
        v, z = noise[t, n, j], anchors[t, n]
        torch.testing.assert_close(noisy[t, n, 1 + j], z + 0.5 * v)
        torch.testing.assert_close(mixed[t, n, 1 + j], z + 0.4 * (v - z))


def test_out_of_class_members_move_towards_the_other_classes_in_turn():
    anchors = torch.randn(2, 3, 4)
    latents = class_latents(anchors, 6, "out-of-class", 0.25)
    for t, n, j in np.ndindex(2, 3, 5):
        other = anchors[t, (n + 1 + j % 2) % 3]
        torch.testing.assert_close(latents[t, n, 1 + j], 0.75 * anchors[t, n] + 0.25 * other)


def test_translation_moves_whole_pixels_and_repeats_the_edge():
    x = torch.arange(2 * 9.0).view(2, 1, 3, 3)
    moved = translate(x, torch.tensor([[1, 0], [0, -2]]))
    assert moved[0, 0].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
    assert moved[1, 0].tolist() == [[11, 11, 11], [14, 14, 14], [17, 17, 17]]
    assert torch.equal(translate(x, torch.zeros(2, 2, dtype=torch.long)), x)


def tasks(kind: str, shots: int = 2, queries: int = 3):
    torch.manual_seed(0)
    made = TaskGenerator(kind, 4, 10, "noise", 0.1)
    made.load(build_generator(kind, IMAGE, 4).state_dict(), IMAGE)
    episode = Episode(ways=3, shots=shots, queries=queries, tasks=2)
    x = images(6).float()
    return made(x, episode, IMAGE), episode, x


@pytest.mark.parametrize("kind", ["vae", "gan"])
def test_tasks_have_the_asked_form_and_the_polarity_of_the_images(kind):
    made, episode, x = tasks(kind)
    assert made.shape == (episode.images, 1, 8, 8)
    assert not made.requires_grad
    pixels = IMAGE.to_unit(made)
    torch.testing.assert_close(IMAGE.from_unit(pixels), made)  # within [0, 1]: nothing is cut off
    support, _ = episode.split(made)
    if kind == "vae":  # the first support of a class is the image itself
        torch.testing.assert_close(support[:, :, 0].flatten(0, 1), x)


def stage_inputs(pixels: np.ndarray) -> StageInputs:
    return StageInputs(pixels, IMAGE, 0, {})


def blobs(number: int = 256) -> np.ndarray:
    """Return images (n, 8, 8, 1) of a bright square anywhere."""
    random = np.random.default_rng(0)
    pixels = np.zeros((number, 8, 8, 1), dtype=np.uint8)
    for image, (r, c) in zip(pixels, random.integers(0, 5, (number, 2)), strict=True):
        image[r : r + 4, c : c + 4] = 255
    return pixels


def trained(kind: str, steps: int):
    """Return a generator after its stage."""
    torch.manual_seed(0)
    stage = GeneratorStage(kind, IMAGE, 8, steps)
    for unit in range(stage.start(stage_inputs(blobs()))):
        stage.advance(unit)
    generator = build_generator(kind, IMAGE, 8)
    generator.load_state_dict(stage.artefact())
    return generator.eval()


def test_the_vae_of_the_stage_learns_the_images():
    x = torch.from_numpy(blobs(64)).permute(0, 3, 1, 2) / 255
    vae = trained("vae", 100)
    drawn = vae.generate(draw_anchors(vae, x))
    assert (drawn - x).square().mean() < 0.7 * (x - x.mean(dim=0)).square().mean()


def test_the_gan_of_the_stage_learns_to_draw_images_that_differ():
    def spread(gan):
        torch.manual_seed(1)
        return gan.generate(gan.draw(64)).std(dim=0).mean().item()

    torch.manual_seed(0)
    assert spread(trained("gan", 150)) > 3 * spread(build_generator("gan", IMAGE, 8))


@pytest.mark.parametrize("kind", ["vae", "gan"])
def test_a_stage_continues_from_its_state_to_the_bit(kind):
    def steps(stage, units):
        for unit in units:
            torch.manual_seed(unit)
            stage.advance(unit)
        return stage.state_dict()

    stages = [GeneratorStage(kind, IMAGE, 4, 5) for _ in range(2)]
    torch.manual_seed(0)
    stages[0].start(stage_inputs(blobs(64)))
    halfway = copy.deepcopy(steps(stages[0], range(3)))
    stages[1].start(stage_inputs(blobs(64)))
    stages[1].load_state_dict(halfway)
    one, other = (steps(stage, range(3, 5)) for stage in stages)
    assert all(torch.equal(one["network"][key], other["network"][key]) for key in one["network"])


def test_a_collapsed_generator_is_reported_with_what_to_change():
    x = torch.rand(32, 1, 8, 8)
    message = (
        r"collapsed: its images have a standard deviation of 0, at least 0\.0\d+ is needed; .*"
        r"generator_steps to more, or method.generator=vae"
    )
    with pytest.raises(PscoError, match=message):
        check_spread(torch.ones(32, 1, 8, 8), x, "gan")
    check_spread(x[:1].expand(32, -1, -1, -1), x[:1].expand(32, -1, -1, -1), "vae")  # one image


SMALL = [
    "image={size: 8, source_size: 8, channels: 1, mean: [0.5], std: [0.25]}",
    "backbone={name: conv4-strided, width: 4}",
    "train={steps: 2, batch_size: 16, log_steps: 1, optimizer: adam}",
    "method={name: lasium-protonets, generator_steps: 60, generator_width: 8}",
]


def train(out, *changes, stop=None):
    pixels = ImageSet(blobs(), name="blobs")
    quiet = {"progress": False, "measure_quality": False}
    return Trainer(pixels, out, "glyphs", [*SMALL, *changes], resume=True, stop=stop, **quiet).run()


def test_a_collapsed_generator_stops_the_run_before_its_first_step(tmp_path):
    with pytest.raises(PscoError, match="the generator has collapsed"):
        train(tmp_path / "run", "method.generator_steps=1")
    assert not (tmp_path / "run/stages/generator.safetensors").exists()
    assert not (tmp_path / "run/model.safetensors").exists()


def test_a_stop_while_the_generator_trains_changes_no_bit(tmp_path):
    train(tmp_path / "whole")
    calls = iter(range(17))
    stopped = train(tmp_path / "parts", stop=lambda: next(calls, None) is None)
    assert not stopped.finished
    assert not (tmp_path / "parts/stages/generator.safetensors").exists()
    assert train(tmp_path / "parts").finished
    for name in ("stages/generator.safetensors", "model.safetensors"):
        one, other = (load_file(tmp_path / part / name) for part in ("whole", "parts"))
        assert all(torch.equal(one[key], other[key]) for key in other)


def test_a_damaged_generator_is_reported(tmp_path):
    train(tmp_path / "run")
    artefact = tmp_path / "run/stages/generator.safetensors"
    content = bytearray(artefact.read_bytes())
    content[-1] ^= 1
    artefact.write_bytes(content)
    with pytest.raises(PscoError, match=r"generator\.safetensors is damaged.*delete it"):
        train(tmp_path / "run")


def test_the_generator_is_no_part_of_the_network_that_is_kept(tmp_path):
    train(tmp_path / "run")
    weights = load_file(tmp_path / "run/model.safetensors")
    assert all(name.startswith("backbone.") for name in weights)
    assert psco.load(tmp_path / "run").method.title == "LASIUM-ProtoNets"


@pytest.mark.parametrize("name", ["lasium-maml", "lasium-protonets"])
def test_the_loss_is_that_of_the_meta_learner_on_the_generated_tasks(name):
    torch.manual_seed(0)
    f = nn.Sequential(nn.Conv2d(1, 3, 3, stride=4), nn.BatchNorm2d(3), nn.Flatten())
    method = METHODS[name](Networks(f, width=12, image=IMAGE), ways=3, tasks=2, queries=2)
    method.use_artefact("generator", build_generator("vae", IMAGE, 32).state_dict())
    x = images(6).float()
    torch.manual_seed(5)
    ours, _ = method.loss(Batch(x, x))
    torch.manual_seed(5)
    made = method._generator(x, method.episode, IMAGE)
    base = METHODS[name.removeprefix("lasium-")]
    twin, _ = base.loss(method, Batch(made, made))
    torch.testing.assert_close(ours, twin)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generator_steps": 0}, "generator_steps must be > 0, got 0"),
        ({"strength": 1.5}, r"strength must be between 0 and 1 for random-out-of-class, got 1\.5"),
        ({"interpolation": "noise", "strength": 0.0}, r"strength must be > 0 for noise, got 0\.0"),
        ({"tasks": 0}, "tasks must be at least 1, got 0"),
    ],
)
@pytest.mark.parametrize("name", ["lasium-maml", "lasium-protonets"])
def test_settings_that_make_no_sense_are_refused(name, options, message):
    networks = Networks(nn.Flatten(), width=64, image=IMAGE)
    with pytest.raises(InputError, match=message):
        METHODS[name](networks, **options)
