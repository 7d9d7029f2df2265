"""Initial weights for a backbone: from torchvision, timm, other training codes or an earlier run.

Files are read weights-only, so reading them runs no code. Wrappers around the backbone are removed:
an entry such as ``state_dict``, and prefixes of names such as ``module.encoder_q.``.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from psco.errors import InputError, PscoError
from psco.files.checksums import verify_checksum
from psco.networks.published import PUBLISHED

WRAPPERS = ("state_dict", "model_state_dict", "model", "method")
# In this order: a file of a momentum method holds an online network and its EMA copy.
PREFIXES = ("module.", "_orig_mod.", "backbone.", "encoder_q.", "encoder.", "model.", "network.")
_RUN_MODEL = "model.safetensors"
_SHOWN = 6  # names in a message
_AGAIN = "get the file again"


def weights_file(source: str | Path) -> Path:
    """Return the file that ``source`` refers to: a file, a run folder or a name.

    Published weights are found by their names, see ``psco.networks.published``, unless there is a
    file or a run folder of that name.

    Raises
    ------
    InputError
        If there is none.
    """
    path = Path(source)
    if path.is_dir():
        path = path / _RUN_MODEL
    if not path.is_file() and str(source) in PUBLISHED:
        return PUBLISHED[str(source)].find()
    if not path.is_file():
        raise InputError(
            f"there are no initial weights {str(path)!r}; --init takes a .safetensors, .pth or "
            f".pt file, a run folder, or one of: {', '.join(PUBLISHED)}"
        )
    return path


def load_backbone(backbone: nn.Module, source: str | Path) -> str:
    """Load initial weights into a backbone, all of them or none.

    Parameters
    ----------
    backbone
        The network; it is left as it was if the weights do not fit.
    source
        A safetensors file, a file of ``torch.save``, a run folder or a name, see `weights_file`.

    Returns
    -------
    str
        One line on what was loaded and what else the file holds.

    Raises
    ------
    InputError
        If there is no such file, or a tensor of the backbone is missing in it or of another shape.
    PscoError
        If the file is damaged.
    """
    path = weights_file(source)
    own = backbone.state_dict()
    found, rest = _unwrap(_read(path), own)
    # Old files lack these counters; they start at zero.
    missing = [n for n in own if n not in found and not n.endswith("num_batches_tracked")]
    if missing:
        raise InputError(
            f"{path} lacks {_names(missing)} of this backbone; it has {_names(sorted(found))}: "
            f"choose the backbone that it is for"
        )
    for name, mine in own.items():
        if name in found and found[name].shape != mine.shape:
            raise InputError(_misfit(path, name, found[name], mine))
    backbone.load_state_dict({**own, **{n: v for n, v in found.items() if n in own}})
    unused = sorted(found.keys() - own.keys()) + sorted(rest)
    used = len(own.keys() & found.keys())
    also = f"; not used: {_names(unused)}" if unused else ""
    return f"{path}: {used} tensors of the backbone loaded{also}"


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".safetensors":
            verify_checksum(path, _AGAIN)  # those of a run have one
            return dict(load_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} holds more than weights, or is damaged; only tensors are read: save the state "
            f"dict alone, as safetensors"
        ) from None
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise PscoError(f"{path} cannot be read (damaged or cut short?): {reason}; {_AGAIN}") from (
            None
        )
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold tensors by name, got a {type(content).__name__}")
    return content


def _unwrap(content: dict[str, Any], own: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors by their names in the backbone, and the names of all others."""
    while wrapper := next((w for w in WRAPPERS if isinstance(content.get(w), dict)), None):
        content = content[wrapper]
    tensors = {str(n): v for n, v in content.items() if isinstance(v, Tensor)}
    rest: list[str] = []
    begun = ""
    while not own.keys() & tensors.keys():
        prefix = next((p for p in PREFIXES if any(n.startswith(p) for n in tensors)), None)
        if prefix is None:
            break
        rest += [begun + n for n in tensors if not n.startswith(prefix)]
        tensors = {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
        begun += prefix
    return tensors, rest


def _misfit(path: Path, name: str, theirs: Tensor, mine: Tensor) -> str:
    there, here = tuple(theirs.shape), tuple(mine.shape)
    message = f"{path}: {name} is {there} in the file and {here} in the backbone; "
    if name == "conv1.weight" and there[2:] != here[2:]:
        small = "false" if there[2:] == (7, 7) else "true"
        return f"{message}--set backbone.small_stem={small} makes the stem of the file"
    if theirs.ndim == 4 and there[1] != here[1] and here[1] in (1, 3):
        return f"{message}--set image.channels={there[1]} gives the images the colours of the file"
    return f"{message}choose the backbone that it is for"


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN]) or "nothing"
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
