"""Compiling loops over small operations, so that no Python runs between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch


def compile_script(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of tensors by TorchScript, and with it those that it calls.

    A loop over operations of a few microseconds loses a tenth of its time to Python, and threads
    that run it wait for the interpreter lock as well. TorchScript avoids both. It is deprecated in
    favour of compilers that need a C++ compiler on the user's machine; should torch drop it, the
    function runs uncompiled.

    Parameters
    ----------
    function
        Annotated, in the subset of Python that TorchScript supports.

    Returns
    -------
    Callable
        A `torch.jit.ScriptFunction`, or the function itself if it cannot be compiled.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            compiled: Callable[..., Any] = torch.jit.script(function)
    except Exception:  # TorchScript is gone, or cannot parse the source
        return function
    return compiled
