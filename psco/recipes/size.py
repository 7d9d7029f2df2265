"""The memory of a network, found before any of it is allocated.

Recipes also come in files from other people: ``config.yaml`` and classifiers. A number in one of
them must not fill the memory, nor reach torch as a negative size.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import nn

from psco.errors import InputError, first_line, quoted

MAX_NETWORK_MB = 1000  # parameters, buffers and copies; PSCO_MAX_NETWORK_MB sets another limit


def check_size(build: Callable[[], nn.Module]) -> None:
    """Raise InputError unless ``build`` returns a network below the limit.

    It is called on torch's meta device, on which tensors have shapes and no memory. A network that
    computes with values while it is built cannot be measured there, and is not checked.
    """
    limit = _limit()
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = build()
    except InputError:
        raise
    except Exception as error:  # whatever a constructor does with values it did not expect
        if isinstance(error, NotImplementedError) or "meta" in str(error):
            return
        raise InputError(f"the recipe makes no network: {first_line(error)}") from None
    tensors = (*network.parameters(), *network.buffers())
    megabytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / 1e6
    if megabytes > limit:
        raise InputError(
            f"the network of the recipe takes {megabytes:,.0f} MB, and the limit is {limit:,} MB; "
            f"set PSCO_MAX_NETWORK_MB to allow more"
        )


def _limit() -> int:
    text = os.environ.get("PSCO_MAX_NETWORK_MB", "")
    if not text:
        return MAX_NETWORK_MB
    if not (text.isascii() and text.isdigit()):
        raise InputError(f"PSCO_MAX_NETWORK_MB must be a whole number, got {quoted(text)}")
    return int(text[:18])
