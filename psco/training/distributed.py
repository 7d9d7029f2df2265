"""Starting the ranks of a run with Lightning Fabric, from psco itself, torchrun or Slurm.

Ranks wait for one another for at most 5 minutes at the start, 24 hours while one of them prepares
the data for all, and ``rank_timeout`` seconds during training.
"""

from __future__ import annotations

import atexit
import gc
import inspect
import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.nn.parallel import DistributedDataParallel

from psco.errors import InputError, PscoError
from psco.ops.ranks import any_rank, rank, world_size

Strategy = Literal["auto", "ddp"]
RANK_TIMEOUT = 60.0  # seconds
_JOIN_TIMEOUT = timedelta(minutes=5)
_PREPARE_TIMEOUT = timedelta(hours=24)
# Newer versions of DistributedDataParallel have renamed the option and warn about the old name.
_RENAMED = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
_KEEP_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if _RENAMED else "broadcast_buffers": False}
# Set by torchrun, by Slurm, and by Fabric for the processes that it starts.
_RANKS = ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK")
_EXIT_SECONDS = 5.0  # to wait for the exit code of a process


@dataclass(frozen=True)
class Place:
    """The processes of a run, ``devices`` on each of ``nodes`` machines, and who starts them."""

    devices: int
    nodes: int
    launcher: str

    @property
    def ranks(self) -> int:
        """Total number of processes."""
        return self.devices * self.nodes

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0, or becomes it: known before the ranks are connected."""
        return self.ranks == 1 or all(os.environ.get(name, "0") == "0" for name in _RANKS)


def find_place(
    devices: int | None, nodes: int | None, environ: Mapping[str, str] = os.environ
) -> Place:
    """Return how many processes there are; None takes the number of torchrun or Slurm, else 1.

    Raises
    ------
    InputError
        If a number is less than 1, or differs from what torchrun or Slurm has started.
    """
    for name, value in {"devices": devices, "nodes": nodes}.items():
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value}")
    started = _started_by_launcher(environ)
    if started is None:
        return Place(devices or 1, nodes or 1, "psco")
    for name, requested in {"devices": devices, "nodes": nodes}.items():
        actual = getattr(started, name)
        if requested not in (None, actual):
            raise InputError(
                f"--{name} is {requested}, but {started.launcher} has started {actual}; omit "
                f"--{name}, or make the two agree"
            )
    return started


def _started_by_launcher(environ: Mapping[str, str]) -> Place | None:
    def number(*names: str) -> int:
        return int(next((environ[name] for name in names if name in environ), "1"))

    if "TORCHELASTIC_RUN_ID" in environ:
        devices = number("LOCAL_WORLD_SIZE")
        return Place(devices, number("WORLD_SIZE") // devices, "torchrun")
    if "SLURM_NTASKS" in environ and environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        ranks, nodes = number("SLURM_NTASKS"), number("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
        if ranks > 1 and "SLURM_NTASKS_PER_NODE" not in environ:
            raise InputError(
                f"Slurm does not say how its {ranks} tasks are distributed over {nodes} nodes; use "
                f"--ntasks-per-node instead of --ntasks"
            )
        return Place(number("SLURM_NTASKS_PER_NODE"), nodes, "Slurm")
    return None


def launch(place: Place, strategy: str, precision: Any) -> Fabric:
    """Start all processes of a run and connect them.

    Unless torchrun or Slurm has started the other processes, they run this process's command again.

    Parameters
    ----------
    place
        The processes.
    strategy
        ``ddp``: every rank has the whole network. ``auto`` chooses it.
    precision
        Number format, by Lightning's names.

    Raises
    ------
    InputError
        If the strategy is unknown, or the machine has too few devices.
    PscoError
        If the processes cannot connect.
    """
    if strategy not in get_args(Strategy):
        allowed = " or ".join(get_args(Strategy))
        raise InputError(f"strategy must be {allowed}, got {strategy!r}")
    if place.ranks == 1:
        return Fabric(devices=1, precision=precision)
    gpus = torch.cuda.device_count()
    if 0 < gpus < place.devices:
        raise InputError(f"--devices is {place.devices}, but this machine has {gpus} GPUs")
    # Hide the line about each process that registers, but not the warnings about dead ones.
    logging.getLogger("lightning_fabric.utilities.distributed").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric.utilities.rank_zero").setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator="cuda" if gpus else "cpu",
        devices=place.devices,
        num_nodes=place.nodes,
        precision=precision,
        strategy=DDPStrategy(
            # Host values are sent with gloo, so that they do not wait for a device.
            process_group_backend="cpu:gloo,cuda:nccl" if gpus else "gloo",
            timeout=_JOIN_TIMEOUT,
            # Buffers are already equal on all ranks: synchronised statistics, gathered keys.
            **_KEEP_BUFFERS,
        ),
    )
    try:
        fabric.launch()
    except (RuntimeError, dist.DistError) as error:
        raise PscoError(
            f"the {place.ranks} ranks could not connect within {_JOIN_TIMEOUT}: "
            f"{_first_line(error)}; on Slurm, start psco with srun"
        ) from None
    _set_pg_timeout(_PREPARE_TIMEOUT)
    atexit.register(_leave)
    return fabric


def _leave() -> None:
    # Threads of the process group that outlive it can abort the interpreter at exit. They end with
    # the group once no network in a reference cycle holds on to it.
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def local_rank_zero_first(fabric: Fabric) -> Iterator[None]:
    """Run the block on the first rank of every machine before the other ranks."""
    if fabric.local_rank > 0:
        _wait(fabric)
    yield
    if fabric.local_rank == 0:
        _wait(fabric)


def _wait(fabric: Fabric) -> None:
    try:
        any_rank(True)
    except RuntimeError as error:
        raise _lost(fabric, error) from None


@contextmanager
def training_together(fabric: Fabric, timeout: float) -> Iterator[None]:
    """Turn the errors that a lost rank causes on the others into one that names the lost rank.

    Parameters
    ----------
    fabric
        What `launch` returned.
    timeout
        Seconds after which a rank that does not respond counts as lost.
    """
    if world_size() == 1:
        yield
        return
    _set_pg_timeout(timedelta(seconds=timeout))
    try:
        yield
    except PscoError as error:
        if rank() > 0:
            error.args = (f"rank {rank()}: {error}",)
        raise
    except RuntimeError as error:
        if not _is_about_ranks(error):
            raise
        raise _lost(fabric, error) from None
    _set_pg_timeout(_PREPARE_TIMEOUT)


def _lost(fabric: Fabric, error: RuntimeError) -> PscoError:
    """Return the error for a lost rank, and kill the processes that this one has started."""
    processes: list[subprocess.Popen[Any]] = getattr(fabric.strategy.launcher, "procs", [])
    reason = exit_reason(processes) or _first_line(error)
    for process in processes:
        process.kill()  # a hanging one would stay forever
    return PscoError(
        f"rank {rank()} has lost another rank: {reason}; --resume continues from the last "
        f"checkpoint"
    )


def _is_about_ranks(error: RuntimeError) -> bool:
    words = ("gloo", "NCCL", "Connection closed", "Connection reset", "TCPStore")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def exit_reason(processes: Sequence[subprocess.Popen[Any]]) -> str | None:
    """Return how the first failed process ended, such as ``"rank 1 was killed by SIGKILL"``.

    The processes are the ranks after this one. None if none of them has failed.
    """
    until = time.monotonic() + _EXIT_SECONDS
    while processes and time.monotonic() < until:
        for number, process in enumerate(processes, start=1):
            code = process.poll()
            if code:
                how = f"was killed by {_signal(-code)}" if code < 0 else f"exited with code {code}"
                return f"rank {rank() + number} {how}"
        time.sleep(0.05)
    return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _first_line(error: Exception) -> str:
    """Return the first line of an error of gloo or the store, without source place and advice."""
    line = str(error).strip().split("\n")[0]
    return re.sub(r"^\[[^]]*\.cc:\d+\] |\. This is typically.*$", "", line)
