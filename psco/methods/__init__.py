"""The training methods by name. A new one is a file here and a line below."""

from __future__ import annotations

from torch import nn

from psco.methods.psco import PsCo
from psco.registry import Registry

METHODS: Registry[nn.Module] = Registry("method")
METHODS.register("psco", PsCo)
