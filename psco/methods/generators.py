"""Training of a generator as a stage, and few-shot tasks made from its latents (LASIUM)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from psco.errors import PscoError
from psco.methods.base import Episode, require, require_positive
from psco.methods.stages import Artefact, Stage, StageInputs
from psco.networks.generative import GAN, VAE
from psco.networks.image_format import ImageFormat

Kind = Literal["vae", "gan"]
Interpolation = Literal["noise", "random-out-of-class", "out-of-class"]
GENERATOR = "generator"
_BATCH = 128
_RATES = {"vae": 1e-3, "gan": 3e-4}  # of Adam
_LATENTS = {"vae": 20, "gan": 128}
_SHIFT = 5  # pixels of 28 by which queries are moved
_SAMPLE = 256  # images that show whether a generator has collapsed
_MIN_SPREAD = 0.03  # of generated images, as a fraction of that of the training images


def build_generator(kind: Kind, image: ImageFormat, width: int) -> VAE | GAN:
    """Return a new generator of images of a format, with the published length of latents."""
    latent = _LATENTS[kind]
    generator: VAE | GAN
    if kind == "gan":
        generator = GAN(image.channels, image.size, latent, width)
    else:
        generator = VAE(image.channels, image.size, latent, width, kl_weight=1 / latent)
    # On the CPU, channels_last halves the time of the convolutions.
    return generator.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


class GeneratorStage(Stage):
    """Trains a VAE or a GAN on the unlabelled images; a unit is a step of 128 images.

    Parameters
    ----------
    kind, image, width
        What to train; see `build_generator`.
    steps
        Number of steps.
    """

    name = GENERATOR

    def __init__(self, kind: Kind, image: ImageFormat, width: int, steps: int) -> None:
        self._kind, self._image, self._width, self._steps = kind, image, width, steps

    def start(self, inputs: StageInputs) -> int:
        """Draw the initial weights."""
        self._inputs = inputs
        self._batch = min(_BATCH, len(inputs))
        self._network = build_generator(self._kind, self._image, self._width)
        parts: list[nn.Module] = [self._network]
        if isinstance(self._network, GAN):
            parts = [self._network.generator, self._network.discriminator]
        rate = _RATES[self._kind]
        self._optimizers = [torch.optim.Adam(part.parameters(), rate) for part in parts]
        return self._steps

    def advance(self, unit: int) -> str:
        """Take a step."""
        x = self._inputs.unit(self._inputs.shuffled(unit, self._batch))
        if isinstance(self._network, GAN):
            return self._step_gan(self._network, x)
        loss, _ = self._network.loss(x)
        self._step(0, loss)
        return f"loss {loss.item():.1f}"

    def _step_gan(self, gan: GAN, x: Tensor) -> str:
        generator_loss, images = gan.generator_loss(gan.draw(len(x)), gan.draw(len(x)))
        self._step(0, generator_loss)
        discriminator_loss = gan.discriminator_loss(x, images[: len(x)])
        self._step(1, discriminator_loss)
        return f"losses {generator_loss.item():.2f} and {discriminator_loss.item():.2f}"

    def _step(self, which: int, loss: Tensor) -> None:
        if not loss.isfinite():
            raise PscoError(
                f"the loss of the generator is {loss.item()}; try another train.seed or "
                f"--set method.generator={'vae' if self._kind == 'gan' else 'gan'}"
            )
        self._optimizers[which].zero_grad()
        torch.autograd.backward(loss)
        self._optimizers[which].step()

    def state_dict(self) -> dict[str, Any]:
        """Return weights and momenta."""
        optimizers = [optimizer.state_dict() for optimizer in self._optimizers]
        return {"network": self._network.state_dict(), "optimizers": optimizers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with weights and momenta."""
        self._network.load_state_dict(state["network"])
        for optimizer, own in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(own)

    def artefact(self) -> Artefact:
        """Return the weights.

        Raises
        ------
        PscoError
            If the generator draws nearly the same image for all latents.
        """
        images = self._inputs.unit(self._inputs.shuffled(0, min(_SAMPLE, len(self._inputs))))
        with torch.no_grad():
            latents = draw_anchors(self._network.eval(), images)
            drawn = self._network.generate(latents)
        check_spread(drawn, images, self._kind)
        return {name: value.detach().clone() for name, value in self._network.state_dict().items()}


def check_spread(drawn: Tensor, images: Tensor, kind: Kind) -> None:
    """Raise PscoError if generated images (B, C, H, W) differ far less than training images."""
    spread, wanted = (x.std(dim=0).mean().item() for x in (drawn, images))
    if spread < _MIN_SPREAD * wanted:
        other = "vae" if kind == "gan" else "gan"
        raise PscoError(
            f"the generator has collapsed: its images have a standard deviation of {spread:.2g}, "
            f"at least {_MIN_SPREAD * wanted:.2g} is needed; --set method.generator_steps to more, "
            f"or method.generator={other}"
        )


@torch.no_grad()
def draw_anchors(generator: VAE | GAN, images: Tensor) -> Tensor:
    """Return a latent for each class (B, d): of images (B, C, H, W), or drawn for a GAN."""
    if isinstance(generator, VAE):
        return generator.encode(images)[0]
    return generator.draw(len(images))


def class_latents(
    anchors: Tensor, members: int, interpolation: Interpolation, strength: float
) -> Tensor:
    """Return latents (T, N, members, d) of classes around their anchors, which come first.

    Parameters
    ----------
    anchors
        (T, N, d).
    members
        Latents of a class.
    interpolation
        ``noise`` adds noise with standard deviation ``strength``; ``random-out-of-class`` moves the
        fraction ``strength`` of the way to a latent drawn from N(0, I) for each member;
        ``out-of-class`` to the anchors of the other classes in turn.
    """
    T, N, d = anchors.shape
    if interpolation == "out-of-class":
        other = 1 + torch.arange(members - 1, device=anchors.device) % (N - 1)  # (members - 1,)
        classes = (torch.arange(N, device=anchors.device)[:, None] + other) % N  # (N, members - 1)
        moved = anchors[:, :, None].lerp(anchors[:, classes], strength)
    else:
        noise = anchors.new_empty(T, N, members - 1, d).normal_()
        start = anchors[:, :, None]
        is_noise = interpolation == "noise"
        moved = start + strength * noise if is_noise else start.lerp(noise, strength)
    return torch.cat([anchors[:, :, None], moved], dim=2)


def translate(images: Tensor, shifts: Tensor) -> Tensor:
    """Move images (B, C, H, W) by whole pixels (B, 2), down and right; the edges are repeated."""
    B, _, H, W = images.shape
    rows = (torch.arange(H, device=images.device) - shifts[:, :1]).clamp(0, H - 1)  # (B, H)
    columns = (torch.arange(W, device=images.device) - shifts[:, 1:]).clamp(0, W - 1)  # (B, W)
    batch = torch.arange(B, device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


class TaskGenerator:
    """Makes tasks of generated images; it is not trained, and not part of the network.

    Parameters
    ----------
    kind, width, steps
        Of the generator; see `GeneratorStage`.
    interpolation, strength
        See `class_latents`.
    """

    def __init__(
        self, kind: Kind, width: int, steps: int, interpolation: Interpolation, strength: float
    ) -> None:
        require_positive(generator_width=width, generator_steps=steps)
        allowed = strength > 0 and (interpolation == "noise" or strength <= 1)
        limits = "> 0" if interpolation == "noise" else "between 0 and 1"
        require(allowed, f"strength must be {limits} for {interpolation}, got {strength}")
        self._kind, self._width, self._steps = kind, width, steps
        self._interpolation, self._strength = interpolation, strength
        self._network: VAE | GAN | None = None

    def stage(self, image: ImageFormat) -> GeneratorStage:
        """Return the stage that trains the generator."""
        return GeneratorStage(self._kind, image, self._width, self._steps)

    def load(self, artefact: Artefact, image: ImageFormat) -> None:
        """Take over the weights of a trained generator."""
        self._network = build_generator(self._kind, image, self._width)
        self._network.load_state_dict(artefact)
        self._network.eval().requires_grad_(False)

    @torch.no_grad()
    def __call__(self, view: Tensor, episode: Episode, image: ImageFormat) -> Tensor:
        """Return the images (T·N·(K + Q), C, H, W) of tasks, normalised.

        Parameters
        ----------
        view
            (T·N, C, H, W) an image for each class; a GAN takes its number only. The image itself is
            the first support of the class of a VAE.
        episode, image
            The form of the tasks and of the images.
        """
        assert self._network is not None, "the stage runs before the first step"
        network = self._network.to(view.device, view.dtype)
        members = episode.shots + episode.queries
        real = image.to_unit(view)
        anchors = draw_anchors(network, real).view(episode.tasks, episode.ways, -1)
        z = class_latents(anchors, members, self._interpolation, self._strength)
        drawn = network.generate(z.flatten(0, 2))
        parts = drawn.reshape(len(view), members, *drawn.shape[1:])  # (TN, K + Q, C, H, W)
        if isinstance(network, VAE):
            parts[:, 0] = real
        queries = parts[:, episode.shots :].flatten(0, 1)
        most = max(1, round(_SHIFT * image.size / 28))
        shifts = torch.randint(-most, most + 1, (len(queries), 2), device=view.device)
        moved = translate(queries, shifts).reshape(len(view), -1, *drawn.shape[1:])
        made = torch.cat([parts[:, : episode.shots], moved], dim=1)
        return image.from_unit(made.flatten(0, 1))
