"""Training in child processes that start fast: a server that has imported everything forks them.

Each child has its own session and writes its output to a file. With ``at={step: partial(function,
...)}`` a child calls a function of this module after a step and before its checkpoint, or, for step
0, before anything else.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch

from psco.classifier.pretraining import pretrain
from psco.cli import main
from psco.errors import PscoError
from psco.training.run import Run

_CONTEXT = multiprocessing.get_context("forkserver")
# The first step of an optimiser imports torch._dynamo, which takes longer than all the rest.
_CONTEXT.set_forkserver_preload(
    ["psco.training.trainer", "psco.experiments.suite", "psco.cli", "torch._dynamo"]
)
PICTURES = np.random.default_rng(0).integers(0, 256, (60, 20, 20, 1), dtype=np.uint8)

At = Mapping[int, Callable[[], None]]


def begin(out: Path, overrides: list[str], at: At | None = None, **options: Any) -> BaseProcess:
    """Start `train` in a child; ``options`` are those of `psco.pretrain`."""
    return _start(_train, (out, overrides, at or {}, options), said_file(out))


def begin_ranks(out: Path, overrides: list[str], ranks: int, **options: Any) -> list[BaseProcess]:
    """Start `train` in ``ranks`` children that form one run, as with torchrun."""
    if ranks == 1:
        return [begin(out, overrides, **options)]
    port = free_port()
    started = []
    for rank in range(ranks):
        args = (torchrun_variables(rank, ranks, port), out, overrides, options)
        started.append(_start(_train_rank, args, said_file(out).with_suffix(f".{rank}")))
    return started


def torchrun_variables(rank: int, ranks: int, port: str) -> dict[str, str]:
    """Return the environment variables that torchrun sets for a rank."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}
    all_of_them = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "TORCHELASTIC_RUN_ID": "test"}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {name: str(value) for name, value in {**own, **all_of_them, **meeting}.items()}


def free_port() -> str:
    """Return a free port for the ranks of a run."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def command(out: Path, *words: object, environment: Mapping[str, str] | None = None) -> BaseProcess:
    """Start the program ``psco``; ``out`` only names the file for its output."""
    return _start(_run_command, (list(map(str, words)), environment or {}), said_file(out))


def said(out: Path) -> str:
    """Return the output of the last child for a run folder, stdout and stderr."""
    return said_file(out).read_text()


def said_file(out: Path) -> Path:
    return out.with_name(f"{out.name}.said")


def kill(process: BaseProcess) -> None:
    """Kill a child with everything it has started, and wait for its end."""
    with suppress(ProcessLookupError):  # it may not have its session yet
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


def _start(target: Callable[..., None], args: tuple[Any, ...], said: Path) -> BaseProcess:
    process = _CONTEXT.Process(target=_apart, args=(target, args, said))
    process.start()
    return process


def _apart(target: Callable[..., None], args: tuple[Any, ...], said: Path) -> None:
    os.setsid()
    # Its workers are its own children, as in a program that was started by hand.
    multiprocessing.set_start_method("fork", force=True)
    with said.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    target(*args)


def _train(out: Path, overrides: list[str], at: At, options: dict[str, Any]) -> None:
    def act(row: Mapping[str, float]) -> None:
        at.get(int(row["step"]), lambda: None)()

    act({"step": 0})
    try:
        train(out, overrides, loggers=[act], **options)
    except PscoError as error:
        sys.exit(f"error: {error}")


def _train_rank(
    environment: Mapping[str, str], out: Path, overrides: list[str], options: dict[str, Any]
) -> None:
    os.environ.update(environment)
    _train(out, overrides, {}, options)


def train(out: Path, overrides: list[str], **options: Any) -> Run:
    """Train on 60 small pictures to the end, from where the run in ``out`` is."""
    return pretrain(
        PICTURES,
        out=out,
        recipe="glyphs",
        overrides=overrides,
        views=(view, view),
        resume=True,
        progress=False,
        **options,
    )


def view(images: torch.Tensor) -> torch.Tensor:
    """Return a cheap view of 16 px; as a function, it also prevents calibration."""
    return images[:, :, 2:18, 2:18].float() / 255 + 0.1 * torch.randn(len(images), 1, 16, 16)


def _run_command(words: list[str], environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    sys.argv = ["psco", *words]
    main()


# ---------------------------------------------------------------- events for ``at``, see above


def limit_files(size: int | None) -> None:
    """Limit files to ``size`` bytes, as on a full disk; None removes the limit."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))


def die_beyond(size: int) -> None:
    """Have this process killed by the write that exceeds ``size`` bytes in a file."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    limit_files(size)


def receive(number: int) -> None:
    """Send this process a signal."""
    os.kill(os.getpid(), number)


def copy_at_every_call(folder: Path, copies: Path) -> None:
    """Before every call that opens, renames or removes a file of a folder, copy the folder.

    The copies, numbered from 0, are what a SIGKILL at these moments would leave.
    """
    copying = False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal copying
        if copying or event not in ("open", "os.rename", "os.remove", "os.chmod", "os.mkdir"):
            return
        if isinstance(args[0], (str, os.PathLike)) and str(args[0]).startswith(str(folder)):
            copying = True
            if folder.exists():
                shutil.copytree(folder, copies / str(len(list(copies.iterdir()))))
            copying = False

    copies.mkdir()
    sys.addaudithook(hook)
