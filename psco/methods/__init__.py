"""The training methods by name. A new one is a file here and a line below.

Methods of other packages are added by an entry point in the group ``psco.methods``.
"""

from __future__ import annotations

from psco.methods.base import METHODS, Batch, Episode, Method
from psco.methods.baselines import Pixels, RandomNetwork, Scratch
from psco.methods.byol import BYOL
from psco.methods.cactus import CACTUsMAML, CACTUsProtoNets
from psco.methods.lasium import LasiumMAML, LasiumProtoNets
from psco.methods.maml import MAML
from psco.methods.meta_gmvae import MetaGMVAE
from psco.methods.meta_svebm import MetaSVEBM
from psco.methods.moco import MoCo
from psco.methods.pretrained import Pretrained
from psco.methods.protonets import ProtoNets
from psco.methods.psco_extended import ExtendedPsCo, PsCoOnBYOL
from psco.methods.simclr import SimCLR
from psco.methods.supervised import Supervised
from psco.methods.swav import SwAV
from psco.methods.uml import UML
from psco.methods.umtra import UMTRA

__all__ = [
    "BYOL",
    "MAML",
    "METHODS",
    "UML",
    "UMTRA",
    "Batch",
    "CACTUsMAML",
    "CACTUsProtoNets",
    "Episode",
    "ExtendedPsCo",
    "LasiumMAML",
    "LasiumProtoNets",
    "MetaGMVAE",
    "MetaSVEBM",
    "Method",
    "MoCo",
    "Pixels",
    "Pretrained",
    "ProtoNets",
    "PsCoOnBYOL",
    "RandomNetwork",
    "Scratch",
    "SimCLR",
    "Supervised",
    "SwAV",
]
