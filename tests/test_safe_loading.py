"""Loading a file never runs code from it: the source has no call that could."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import psco

FILES = sorted(Path(psco.__file__).parent.rglob("*.py"))
# Full names; a trailing dot means everything in that module.
FORBIDDEN = (
    *("eval", "exec", "compile", "__import__"),
    *("pickle.load", "pickle.loads", "_pickle.", "cPickle.", "dill.", "cloudpickle.", "joblib."),
    *("marshal.", "shelve.", "code.", "runpy."),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all"),
    *("yaml.full_load", "yaml.full_load_all", "yaml.Loader", "yaml.UnsafeLoader"),
    *("yaml.FullLoader", "yaml.CLoader"),
    *("torch.jit.load", "torch.hub.", "torch.package.", "torch.export.load"),
    *("torch.serialization.", "pandas.read_pickle"),
)
# Allowed in one file only, whose subclass restricts what a pickle may name.
RESTRICTED = {"pickle.Unpickler": "pickles.py"}


def dangers(source: str) -> Iterator[str]:
    """Yield the full names of everything in a module that can run code."""
    tree = ast.parse(source)
    origin = {name: name for name in ("eval", "exec", "compile", "__import__")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                origin[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}".removeprefix("builtins.")
                origin[alias.asname or alias.name] = full
                if is_forbidden(full) or alias.name == "*":
                    yield full
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and is_forbidden(full_name(node, origin)):
            yield full_name(node, origin)
        if isinstance(node, ast.Call):
            called = full_name(node.func, origin)
            if called == "torch.load" and option(node, "weights_only") is not True:
                yield "torch.load"
            if called == "numpy.load" and option(node, "allow_pickle") not in (None, False):
                yield "numpy.load"
        elif isinstance(node, ast.ImportFrom) and node.module in ("torch", "numpy"):
            # Under another name, the options of a call would not be checked.
            yield from (f"{node.module}.load" for alias in node.names if alias.name == "load")


def full_name(node: ast.AST, origin: dict[str, str]) -> str:
    """Return the dotted name of an expression, with the import of its first part resolved."""
    if isinstance(node, ast.Name):
        name = origin.get(node.id, "")
        return name.removeprefix("builtins.")
    if isinstance(node, ast.Attribute):
        base = full_name(node.value, origin)
        return f"{base}.{node.attr}".removeprefix("builtins.") if base else ""
    return ""


def is_forbidden(name: str) -> bool:
    return any(
        name.startswith(bad) if bad.endswith(".") else name == bad
        for bad in (*FORBIDDEN, *RESTRICTED)
    )


def option(call: ast.Call, name: str) -> object:
    """Return the constant of a keyword, None if it is absent, the node if it is computed."""
    for keyword in call.keywords:
        if keyword.arg is None or (
            keyword.arg == name and not isinstance(keyword.value, ast.Constant)
        ):
            return keyword
        if keyword.arg == name:
            return keyword.value.value
    return None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_module_runs_code_from_the_files_it_loads(path):
    found = set(dangers(path.read_text()))
    assert found <= {name for name, file in RESTRICTED.items() if file == path.name}


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "run = exec",
        "import builtins; builtins.eval('1')",
        "from builtins import exec as run",
        "import pickle; pickle.load(f)",
        "import pickle as p; p.loads(b)",
        "from pickle import load",
        "from pickle import loads as parse",
        "import pickle; read = pickle.load",
        "import pickle; pickle.Unpickler(f).load()",
        "import marshal; marshal.loads(b)",
        "import shelve; shelve.open(f)",
        "import joblib; joblib.load(f)",
        "import yaml; yaml.load(f, yaml.SafeLoader)",
        "import yaml; yaml.unsafe_load(f)",
        "from yaml import full_load",
        "import yaml as y; y.load_all(f, Loader=y.UnsafeLoader)",
        "import torch; torch.load(f)",
        "import torch; torch.load(f, weights_only=False)",
        "import torch; torch.load(f, weights_only=safe)",
        "import torch; torch.load(f, **options)",
        "import torch as t; t.load(f)",
        "from torch import load",
        "import torch; torch.jit.load(f)",
        "from torch import jit; jit.load(f)",
        "import torch.hub; torch.hub.load(f)",
        "from torch.hub import load_state_dict_from_url",
        "import numpy as np; np.load(f, allow_pickle=True)",
        "import numpy; numpy.load(f, allow_pickle=trusted)",
        "from numpy import load",
        "from pickle import *",
    ],
)
def test_the_scan_finds_calls_that_can_run_code(source):
    assert list(dangers(source))


@pytest.mark.parametrize(
    "source",
    [
        "import torch; torch.load(f, map_location='cpu', weights_only=True)",
        "import numpy as np; np.load(f); np.load(f, mmap_mode='r', allow_pickle=False)",
        "import yaml; yaml.safe_load(f); yaml.YAMLError",
        "import pickle; pickle.UnpicklingError",
        "import re; re.compile('x'); model.eval(); json.load(f)",
        "import torch; torch.compile(model); from psco import load",
        "def load(f): ...\nload(f)",
    ],
)
def test_the_scan_accepts_calls_that_cannot(source):
    assert not list(dangers(source))
