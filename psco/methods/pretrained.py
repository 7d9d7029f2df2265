"""Given weights as they are: the supervised row of the paper's large-scale table, and any other."""

from __future__ import annotations

from typing import ClassVar

from psco.methods.base import METHODS
from psco.methods.baselines import Baseline


@METHODS.register("pretrained")
class Pretrained(Baseline):
    """A backbone with the weights of a file, such as torchvision's ResNet-50; nothing is trained.

    The weights are those of ``--init``, or of a timm backbone with ``pretrained: true``. As in the
    paper, a linear probe on the features classifies the tasks.

    Parameters
    ----------
    networks
        f; the heads are not used.
    """

    title = "Pretrained weights"
    rule, transfer_rule = "linear", "linear"
    summary = "features of given weights (--init), such as torchvision's; nothing is trained"
    settings: ClassVar = {"heads": {"predictor": False}, "train": {"freeze": None}}
    needs_weights = True
