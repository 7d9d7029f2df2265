"""The training methods by name. A new one is a file here and a line below."""

from __future__ import annotations

from psco.methods.base import Episode, Method
from psco.methods.baselines import Pixels, RandomNetwork, Scratch
from psco.methods.byol import BYOL
from psco.methods.maml import MAML
from psco.methods.moco import MoCo
from psco.methods.protonets import ProtoNets
from psco.methods.psco import PsCo
from psco.methods.psco_byol import PsCoOnBYOL
from psco.methods.simclr import SimCLR
from psco.methods.supervised import Supervised
from psco.methods.swav import SwAV
from psco.registry import Registry

METHODS: Registry[Method] = Registry("method")
METHODS.register("psco", PsCo)
METHODS.register("psco-byol", PsCoOnBYOL, auxiliary="byol")
METHODS.register("simclr", SimCLR)
METHODS.register("moco", MoCo)
METHODS.register("swav", SwAV)
METHODS.register("byol", BYOL)
METHODS.register("protonets", ProtoNets)
METHODS.register("maml", MAML)
METHODS.register("supervised", Supervised)
METHODS.register("scratch", Scratch)
METHODS.register("random", RandomNetwork)
METHODS.register("pixels", Pixels)

__all__ = ["METHODS", "Episode", "Method"]
