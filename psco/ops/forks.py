"""Forked processes compute on one thread.

The threads of OpenMP do not survive a fork, and a child that waits for them hangs. This concerns
``multiprocessing`` with the start method ``fork``, the workers of a ``DataLoader`` among others.
With ``spawn`` or ``forkserver`` a child has threads of its own.
"""

from __future__ import annotations

import os

import torch

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
