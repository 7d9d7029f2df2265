"""LASIUM: meta-learning on tasks from the latents of a generator (Khodadadeh et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from psco.methods.base import EPISODIC_SETTINGS, METHODS, Batch, Episode, Logs, Method
from psco.methods.generators import GENERATOR, Interpolation, Kind, TaskGenerator
from psco.methods.maml import MAML
from psco.methods.protonets import ProtoNets
from psco.methods.stages import Artefact, Stage
from psco.networks.networks import Networks
from psco.ops.inner_loop import Statistics

_PAPER = "Khodadadeh, Zehtabian, Vahidian, Wang, Lin and Bölöni, ICLR 2021"


class OnGeneratedTasks(Method):
    """A meta-learner whose tasks are generated; the class after it in the bases has the loss.

    Every image of a batch is the anchor of a class.
    """

    images_are_classes = True
    episode: Episode
    _generator: TaskGenerator

    def stages(self) -> Sequence[Stage]:
        """Return the training of the generator."""
        return (self._generator.stage(self.image),)

    def use_artefact(self, name: str, artefact: Artefact) -> None:
        """Take over the generator."""
        if name == GENERATOR:
            self._generator.load(artefact, self.image)

    def loss(self, batch: Batch) -> tuple[Tensor, Logs]:
        """Return the loss of the meta-learner on generated tasks."""
        made = self._generator(batch.view_a, self.episode, self.image)
        return super().loss(batch._replace(view_a=made))


@METHODS.register("lasium-protonets")
class LasiumProtoNets(OnGeneratedTasks, ProtoNets):
    """ProtoNets on generated tasks: a class is a latent and its neighbours.

    Parameters
    ----------
    networks
        f; the heads are not used.
    ways, shots, queries, tasks
        N, K and Q of a training task, and tasks in a step.
    generator
        ``vae``, whose classes start from images of the data set, or ``gan``.
    interpolation, strength
        How the other latents of a class are made: ``noise`` of standard deviation ``strength``, or
        a step of the fraction ``strength`` towards a random latent (``random-out-of-class``) or
        another class of the task (``out-of-class``).
    generator_steps, generator_width
        Steps of 128 images of the generator, and filters of its convolutions. Published: 94,000
        and 128 for the GAN, 64 filters for the VAE.
    """

    title, kind = "LASIUM-ProtoNets", "unsupervised"
    paper = _PAPER
    summary = "ProtoNets on tasks that a generator draws around random latents"
    settings = EPISODIC_SETTINGS

    def __init__(
        self,
        networks: Networks,
        ways: int = 5,
        shots: int = 1,
        queries: int = 5,
        tasks: int = 4,
        generator: Kind = "vae",
        interpolation: Interpolation = "random-out-of-class",
        strength: float = 0.4,
        generator_steps: int = 6000,
        generator_width: int = 32,
    ) -> None:
        super().__init__(networks, ways, shots, queries)
        self.episode = Episode(ways, shots, queries, tasks)
        self._generator = TaskGenerator(
            generator, generator_width, generator_steps, interpolation, strength
        )


@METHODS.register("lasium-maml")
class LasiumMAML(OnGeneratedTasks, MAML):
    """MAML on generated tasks: a class is a latent and its neighbours.

    Parameters
    ----------
    networks
        f, whose BatchNorm layers become `TaskNorm`; the heads are not used.
    ways, shots, queries, tasks
        N, K and Q of a training task, and tasks in a step; a test task can have no more ways.
    inner_rate, inner_steps, test_steps, first_order, statistics
        See `MAML`. Published: 0.4 on the mean cross-entropy, 0.08 here, for another network.
    generator, interpolation, strength, generator_steps, generator_width
        See `LasiumProtoNets`.
    """

    title, kind = "LASIUM-MAML", "unsupervised"
    paper = _PAPER
    summary = "MAML on tasks that a generator draws around random latents"

    def __init__(
        self,
        networks: Networks,
        ways: int = 5,
        shots: int = 1,
        queries: int = 5,
        tasks: int = 4,
        inner_rate: float = 0.01,
        inner_steps: int = 5,
        test_steps: int = 50,
        first_order: bool = False,
        statistics: Statistics = "support",
        generator: Kind = "vae",
        interpolation: Interpolation = "random-out-of-class",
        strength: float = 0.4,
        generator_steps: int = 6000,
        generator_width: int = 32,
    ) -> None:
        super().__init__(
            networks,
            ways,
            shots,
            queries,
            tasks,
            inner_rate,
            inner_steps,
            test_steps,
            first_order,
            statistics,
        )
        self._generator = TaskGenerator(
            generator, generator_width, generator_steps, interpolation, strength
        )
