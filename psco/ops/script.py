"""Loops over small operations without Python between them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch


def compile_script(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of tensors by TorchScript, and with it those that it calls.

    A loop over operations of some microseconds loses a tenth of its time to Python, and threads
    that run it wait for Python's lock on top. TorchScript has neither. It is deprecated in favour
    of compilers that need one for C++ on the user's machine, which is no option here; should torch
    drop it, the function runs as it is.

    Parameters
    ----------
    function
        With annotations, in the part of Python that TorchScript knows.

    Returns
    -------
    Callable
        A `torch.jit.ScriptFunction`; or the function itself where that cannot be made.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            compiled: Callable[..., Any] = torch.jit.script(function)
    except Exception:  # gone, no source code, a word it does not know: the function is still right
        return function
    return compiled
