"""CACTUs: meta-learning on clusters of unsupervised codes (Hsu, Levine and Finn, ICLR 2019)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from psco.methods.base import EPISODIC_SETTINGS, METHODS, Kind, Method, require_positive
from psco.methods.encoding import EncoderName, encoding_stage
from psco.methods.maml import MAML
from psco.methods.partitions import Partitions
from psco.methods.protonets import ProtoNets
from psco.methods.stages import Artefact, Stage
from psco.networks.networks import Networks
from psco.ops.inner_loop import Statistics


class ClusterTasks(Method):
    """Draws training tasks from clusters instead of classes; a method to mix in before another.

    Two stages come before the first step: codes of all images, then partitions of these codes. A
    task takes a partition, then clusters of it as classes.
    """

    kind: ClassVar[Kind] = "unsupervised"
    distributes = False
    paper = "Hsu, Levine and Finn, ICLR 2019"
    _labels: np.ndarray | None = None

    def set_clustering(
        self,
        networks: Networks,
        encoder: EncoderName,
        encoder_epochs: float,
        clusters: int,
        partitions: int,
    ) -> None:
        """Keep the options of the stages, and a copy of the networks if an encoder trains them.

        It is called before the other method changes the networks.
        """
        require_positive(encoder_epochs=encoder_epochs)
        self._encoder, self._encoder_epochs = encoder, encoder_epochs
        self._clusters, self._partitions = clusters, partitions
        # In a list, so that its weights are none of this method's.
        self._untrained = [copy.deepcopy(networks)] if encoder == "moco" else [networks]

    def stages(self) -> Sequence[Stage]:
        """Return the stages for codes and for partitions."""
        episode = self.episode
        assert episode is not None
        members = episode.shots + episode.queries
        return (
            encoding_stage(self._encoder, self._untrained[0], self._encoder_epochs),
            Partitions(self._clusters, self._partitions, members, episode.ways),
        )

    def use_artefact(self, name: str, artefact: Artefact) -> None:
        """Keep the partitions."""
        if name == Partitions.name:
            self._labels = artefact["labels"].numpy()

    def labellings(self) -> np.ndarray | None:
        """Return the partitions (P, n)."""
        return self._labels


@METHODS.register("cactus-maml")
class CACTUsMAML(ClusterTasks, MAML):
    """MAML on tasks whose classes are clusters.

    Parameters
    ----------
    networks
        f, see `MAML`; the heads are used by the encoder ``moco`` alone.
    encoder
        What is clustered: codes of ``acai``, features of ``moco``, whitened ``pixels``, or nothing,
        ``random`` clusters.
    encoder_epochs
        Length of the training of ``acai`` and ``moco``.
    clusters, partitions
        k, clusters of a partition, and P, number of partitions. Published: 500 and 100.
    ways, shots, queries, tasks
        N, K and Q of a training task, and tasks in a step; see `MAML`.
    inner_rate, inner_steps, test_steps, first_order, statistics
        See `MAML`. Published: a rate of 0.05 on a network that averages its last feature maps,
        and ``statistics=query``.
    """

    title = "CACTUs-MAML"
    summary = "MAML on tasks from clusters of codes that were learnt without labels"
    settings: ClassVar = EPISODIC_SETTINGS

    def __init__(
        self,
        networks: Networks,
        encoder: EncoderName = "acai",
        encoder_epochs: float = 4.0,
        clusters: int = 500,
        partitions: int = 100,
        ways: int = 20,
        shots: int = 1,
        queries: int = 5,
        tasks: int | None = None,
        inner_rate: float = 0.004,
        inner_steps: int = 5,
        test_steps: int = 50,
        first_order: bool = False,
        statistics: Statistics = "support",
    ) -> None:
        self.set_clustering(networks, encoder, encoder_epochs, clusters, partitions)
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


@METHODS.register("cactus-protonets")
class CACTUsProtoNets(ClusterTasks, ProtoNets):
    """ProtoNets on tasks whose classes are clusters.

    Parameters
    ----------
    networks
        f; the heads are used by the encoder ``moco`` alone.
    encoder, encoder_epochs, clusters, partitions
        See `CACTUsMAML`.
    ways, shots, queries
        N, K and Q of a training task.
    """

    title = "CACTUs-ProtoNets"
    summary = "ProtoNets on tasks from clusters of codes that were learnt without labels"
    settings: ClassVar = EPISODIC_SETTINGS

    def __init__(
        self,
        networks: Networks,
        encoder: EncoderName = "acai",
        encoder_epochs: float = 4.0,
        clusters: int = 500,
        partitions: int = 100,
        ways: int | None = 20,
        shots: int = 1,
        queries: int = 15,
    ) -> None:
        self.set_clustering(networks, encoder, encoder_epochs, clusters, partitions)
        super().__init__(networks, ways, shots, queries)
