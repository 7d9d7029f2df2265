"""ACAI: an auto-encoder whose interpolations look real (Berthelot et al., ICLR 2019).

A critic learns to tell how far an image is mixed, from the image alone. The auto-encoder learns to
reconstruct, and to make the critic answer 0 for images decoded from mixed codes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from psco.errors import InputError

_SIDE = 4  # of the code's feature maps
_SLOPE = 0.2  # of the leaky ReLUs


class ACAILosses(NamedTuple):
    """The losses of both players, and the reconstruction error alone."""

    autoencoder: Tensor
    critic: Tensor
    reconstruction: Tensor


class ACAI(nn.Module):
    """Auto-encoder and critic.

    Parameters
    ----------
    channels, size
        Colour channels and side of the images, a power of 2 of at least 8.
    latent
        Feature maps of 4x4 that make a code of 16 · latent numbers.
    depth
        Filters of the first convolutions; twice as many after each halving of the side.
    weight
        Of the critic's answer in the loss of the auto-encoder.
    blend
        Share of the original in the reconstruction that the critic must call unmixed.

    Raises
    ------
    InputError
        If the side is not such a power.
    """

    def __init__(
        self,
        channels: int,
        size: int,
        latent: int = 16,
        depth: int = 16,
        weight: float = 0.5,
        blend: float = 0.2,
    ) -> None:
        super().__init__()
        scales = (size // _SIDE).bit_length() - 1
        if size != _SIDE * 2**scales or scales < 1:
            raise InputError(f"ACAI needs images of 8, 16, 32, 64, ... pixels, got {size}")
        self.encoder = _encoder(channels, latent, depth, scales)
        self.decoder = _decoder(channels, latent, depth, scales)
        self.critic = _encoder(channels, latent, depth, scales)
        self.code = latent * _SIDE**2
        self.weight = weight
        self.blend = blend

    def start_at(self, colour: Tensor) -> None:
        """Let the untrained decoder draw about this colour (C,), the mean of the images."""
        last = self.decoder[-1]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        with torch.no_grad():
            last.bias.copy_(colour)

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes (B, code) of images (B, C, H, W) in [0, 1]."""
        codes: Tensor = self.encoder(x).flatten(1)
        return codes

    def judge(self, x: Tensor) -> Tensor:
        """Return how far the critic believes images (B, C, H, W) to be mixed: (B,)."""
        answer: Tensor = self.critic(x).mean(dim=(1, 2, 3))
        return answer

    def losses(self, x: Tensor, amounts: Tensor | None = None) -> ACAILosses:
        """Return the losses for images (B, C, H, W); each player must follow only its own.

        Parameters
        ----------
        x
            Images in [0, 1]. Image i is mixed with image B - 1 - i.
        amounts
            (B,) in [0, 0.5], how far each is mixed; None draws them uniformly.
        """
        z = self.encoder(x)  # (B, latent, 4, 4)
        decoded = self.decoder(z)  # (B, C, H, W)
        a = 0.5 * torch.rand(len(x), device=x.device) if amounts is None else amounts
        share = a[:, None, None, None]
        mixed = self.decoder(share * z + (1 - share) * z.flip(0))
        of_mixed = self.judge(mixed)  # (B,)
        of_real = self.judge((decoded + self.blend * (x - decoded)).detach())
        reconstruction = F.mse_loss(decoded, x)
        return ACAILosses(
            reconstruction + self.weight * of_mixed.square().mean(),
            (of_mixed - a).square().mean() + of_real.square().mean(),
            reconstruction.detach(),
        )


class ACAITraining:
    """Both players and their optimisers.

    Parameters
    ----------
    model
        Auto-encoder and critic.
    rate
        Learning rate of Adam, for both.
    """

    def __init__(self, model: ACAI, rate: float = 1e-4) -> None:
        self.model = model
        self._players = [
            [*model.encoder.parameters(), *model.decoder.parameters()],
            [*model.critic.parameters()],
        ]
        self._optimizers = [torch.optim.Adam(player, lr=rate) for player in self._players]

    def step(self, x: Tensor) -> Tensor:
        """Train both players on images (B, C, H, W), and return the reconstruction error."""
        losses = self.model.losses(x)
        # Both losses share the critic's answers; neither gradient may reach the other player.
        for which, (player, loss) in enumerate(zip(self._players, losses[:2], strict=True)):
            gradients = torch.autograd.grad(loss, player, retain_graph=which == 0)
            for weight, gradient in zip(player, gradients, strict=True):
                weight.grad = gradient
        for optimizer in self._optimizers:
            optimizer.step()
        return losses.reconstruction

    def state_dict(self) -> dict[str, object]:
        """Return weights and momenta."""
        optimizers = [optimizer.state_dict() for optimizer in self._optimizers]
        return {"model": self.model.state_dict(), "optimizers": optimizers}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Continue from what `state_dict` returned."""
        self.model.load_state_dict(state["model"])  # type: ignore[arg-type]
        for optimizer, stored in zip(self._optimizers, state["optimizers"], strict=True):  # type: ignore[call-overload]
            optimizer.load_state_dict(stored)


def _encoder(channels: int, latent: int, depth: int, scales: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(channels, depth, 1)]
    width = depth
    for scale in range(scales):
        layers += [*_pair(width, depth << scale), nn.AvgPool2d(2)]
        width = depth << scale
    last = depth << scales
    layers += [*_convolution(width, last), nn.Conv2d(last, latent, 3, padding=1)]
    return nn.Sequential(*layers)


def _decoder(channels: int, latent: int, depth: int, scales: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    width = latent
    for scale in reversed(range(scales)):
        layers += [*_pair(width, depth << scale), nn.Upsample(scale_factor=2)]
        width = depth << scale
    layers += [*_convolution(width, depth), nn.Conv2d(depth, channels, 3, padding=1)]
    return nn.Sequential(*layers)


def _pair(width: int, out: int) -> list[nn.Module]:
    return [*_convolution(width, out), *_convolution(out, out)]


def _convolution(width: int, out: int) -> list[nn.Module]:
    return [nn.Conv2d(width, out, 3, padding=1), nn.LeakyReLU(_SLOPE)]
