"""Starting the ranks of a run on Lightning Fabric, by itself or within torchrun and Slurm.

Ranks that wait for one another do so in three ways: minutes until all have come, hours while one of
them prepares the data for all, and no longer than the ``rank_timeout`` of the run once it trains.
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
_JOINING, _PREPARING = timedelta(minutes=5), timedelta(hours=24)
# DistributedDataParallel has a new name for it, and warns of the old one where it has.
_NEW = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
_KEEP_BUFFERS: dict[str, Any] = {"forward_sync_buffers" if _NEW else "broadcast_buffers": False}
_FATE_SECONDS = 5.0  # until the system has told how a process ended


@dataclass(frozen=True)
class Place:
    """The processes of a run: ``devices`` on each of ``nodes`` machines, and who starts them."""

    devices: int
    nodes: int
    launcher: str

    @property
    def ranks(self) -> int:
        """Processes in all."""
        return self.devices * self.nodes


def find_place(
    devices: int | None, nodes: int | None, environ: Mapping[str, str] = os.environ
) -> Place:
    """Settle how many processes there are; None leaves it to torchrun or Slurm, else it is 1.

    Raises
    ------
    InputError
        If a number is less than 1, or torchrun or Slurm has started another number.
    """
    for name, value in {"devices": devices, "nodes": nodes}.items():
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, not {value}")
    started = _started_by_others(environ)
    if started is None:
        return Place(devices or 1, nodes or 1, "psco")
    for name, asked in {"devices": devices, "nodes": nodes}.items():
        there = getattr(started, name)
        if asked not in (None, there):
            raise InputError(
                f"--{name} {asked} was asked for, and {started.launcher} has started {there}; "
                f"leave --{name} out, or make them agree"
            )
    return started


def _started_by_others(environ: Mapping[str, str]) -> Place | None:
    def number(*names: str) -> int:
        return int(next((environ[name] for name in names if name in environ), "1"))

    if "TORCHELASTIC_RUN_ID" in environ:
        devices = number("LOCAL_WORLD_SIZE")
        return Place(devices, number("WORLD_SIZE") // devices, "torchrun")
    if "SLURM_NTASKS" in environ and environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        ranks, nodes = number("SLURM_NTASKS"), number("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
        if ranks > 1 and "SLURM_NTASKS_PER_NODE" not in environ:
            raise InputError(
                f"Slurm has {ranks} tasks of which nobody knows how they spread over {nodes} "
                f"nodes; give --ntasks-per-node instead of --ntasks"
            )
        return Place(number("SLURM_NTASKS_PER_NODE"), nodes, "Slurm")
    return None


def launch(place: Place, strategy: str, precision: Any) -> Fabric:
    """Start all processes of a run and wait until they have found one another.

    Unless torchrun or Slurm has started them, the others run the command of this process again.

    Parameters
    ----------
    place
        Where the processes are.
    strategy
        ``ddp``, every rank has the whole network; ``auto`` chooses.
    precision
        Number format, as Lightning names them.

    Raises
    ------
    InputError
        If the strategy is not known, or the machine has not so many devices.
    PscoError
        If the others do not come.
    """
    if strategy not in get_args(Strategy):
        known = " or ".join(get_args(Strategy))
        raise InputError(f"strategy must be {known}, not {strategy!r}")
    if place.ranks == 1:
        return Fabric(devices=1, precision=precision)
    gpus = torch.cuda.device_count()
    if 0 < gpus < place.devices:
        raise InputError(f"--devices {place.devices}, and this machine has {gpus} GPUs")
    # The lines about every process that registers; what it says about dead ones is of interest.
    logging.getLogger("lightning_fabric.utilities.distributed").setLevel(logging.WARNING)
    logging.getLogger("lightning_fabric.utilities.rank_zero").setLevel(logging.WARNING)
    fabric = Fabric(
        accelerator="cuda" if gpus else "cpu",
        devices=place.devices,
        num_nodes=place.nodes,
        precision=precision,
        strategy=DDPStrategy(
            # Numbers on the host travel by gloo, so that they wait for no device.
            process_group_backend="cpu:gloo,cuda:nccl" if gpus else "gloo",
            timeout=_JOINING,
            # All buffers are the same on all ranks anyway: synchronised statistics, gathered keys.
            **_KEEP_BUFFERS,
        ),
    )
    try:
        fabric.launch()
    except (RuntimeError, dist.DistError) as error:
        raise PscoError(
            f"the {place.ranks} ranks have not found one another in {_JOINING}: "
            f"{_first_line(error)}; on Slurm, start psco by srun"
        ) from None
    _set_pg_timeout(_PREPARING)
    atexit.register(_leave)
    return fabric


def _leave() -> None:
    # Threads of the group that live on while the interpreter ends may abort it. They end with the
    # group, if no network in a circle of references holds on to it.
    gc.collect()
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def local_rank_zero_first(fabric: Fabric) -> Iterator[None]:
    """Let the first rank of every machine do something before the others, which find it done."""
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
    """Say which rank has gone, when one has, instead of what its absence did to the others.

    Parameters
    ----------
    fabric
        What `launch` gave.
    timeout
        Seconds after which a rank that does not answer counts as gone.
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
    _set_pg_timeout(_PREPARING)


def _lost(fabric: Fabric, error: RuntimeError) -> PscoError:
    """Make the error of a rank that was left alone, and end what this process has started."""
    processes: list[subprocess.Popen[Any]] = getattr(fabric.strategy.launcher, "procs", [])
    fate = _fate(processes) or _first_line(error)
    for process in processes:
        process.kill()  # one that hangs would stay for ever
    return PscoError(
        f"rank {rank()} has lost another rank: {fate}; --resume continues from the last checkpoint"
    )


def _is_about_ranks(error: RuntimeError) -> bool:
    words = ("gloo", "NCCL", "Connection closed", "Connection reset", "TCPStore")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def _fate(processes: Sequence[subprocess.Popen[Any]]) -> str | None:
    """Tell how the first of the processes that this one has started ended; None if none has."""
    until = time.monotonic() + _FATE_SECONDS
    while processes and time.monotonic() < until:
        for number, process in enumerate(processes, start=1):
            code = process.poll()
            if code:
                how = f"was killed by {_signal(-code)}" if code < 0 else f"ended with code {code}"
                return f"rank {rank() + number} {how}"
        time.sleep(0.05)
    return None


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _first_line(error: Exception) -> str:
    """Give what gloo or the store has to say, without the place in its source and its advice."""
    line = str(error).strip().split("\n")[0]
    return re.sub(r"^\[[^]]*\.cc:\d+\] |\. This is typically.*$", "", line)
