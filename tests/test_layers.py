"""The package's own structure: what may import what, and what a first import costs."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import psco

ROOT = Path(psco.__file__).parent
# From the bottom up: a module imports only from its own layer and from those before it.
LAYERS = [
    ["version", "errors", "registry", "progress", "files"],
    ["ops"],
    ["data", "views", "networks"],
    ["methods"],
    ["recipes"],
    ["training", "evaluation"],
    ["classifier"],
    ["export", "labelling", "report", "experiments"],
    ["server"],
    ["cli", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def layer(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return {name.split(".")[1] for name in names if name.startswith("psco.")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_lower_layers_never_import_upper_ones(path):
    own = layer(path)
    assert own in LEVEL, f"give {own!r} a place in LAYERS"
    above = {name for name in imports(path) if LEVEL[name] > LEVEL[own]}
    assert not above, f"{path.name} imports {above} from above"


def test_the_hall_is_small():
    assert len(list(ROOT.glob("*.py"))) <= 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_import_inside_a_function_hides_a_cycle(path):
    if layer(path) == "cli":  # commands import what they need when they run, to start quickly
        return
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            inside = [n for n in ast.walk(function) if isinstance(n, ast.ImportFrom)]
            assert not [n.module for n in inside if n.module and n.module.startswith("psco")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_docstrings_start_with_what_is_returned_or_done(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = (ast.get_docstring(node) or "").split(" ")[0]
            assert first not in ("Give", "Say", "Tell"), getattr(node, "name", path)


def test_rivals_do_not_import_from_psco():
    for path in (ROOT / "methods").glob("*.py"):
        if path.stem not in ("__init__", "psco", "psco_extended"):
            assert "psco.methods.psco" not in path.read_text(), path.name


def test_importing_the_method_loads_no_data_set():
    code = "import sys, psco.methods.psco; sys.exit('psco.data' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_paper_is_free_of_devices_logging_configuration_and_distribution():
    text = (ROOT / "methods" / "psco.py").read_text()
    words = ["cuda", "logging", "print(", "yaml", "pydantic", "distributed", "fabric"]
    for word in [*words, "native", "rank", "gather", "kernel"]:
        assert word not in text, word


@pytest.mark.parametrize("module", ["psco", "psco.cli"])
def test_importing_the_package_or_the_command_line_does_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_exists_and_hides_no_module():
    modules = {module.name for module in pkgutil.iter_modules([str(ROOT)])}
    for name in psco.__all__:
        assert getattr(psco, name) is not None
        assert name not in modules
    assert set(dir(psco)) == set(psco.__all__)


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'sinkhron'"):
        psco.sinkhron  # noqa: B018


def test_the_suite_runs_beside_a_broken_torchvision():
    with pytest.raises(RuntimeError, match="nms does not exist"):
        import torchvision  # noqa: F401
