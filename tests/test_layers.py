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
    ["version", "errors"],
    ["disk", "stopping"],
    ["confidence"],
    ["compiled", "registry", "optional", "runtime", "progress", "ranks"],
    ["launch"],
    ["data"],
    ["kernels", "seal"],
    ["views"],
    ["momentum", "networks"],
    ["inner_loop"],
    ["methods"],
    ["rules"],
    ["recipe"],
    ["build", "check", "feed", "metrics", "schedule", "stream"],
    ["checkpoint", "collapse"],
    ["averaging", "settling"],
    ["loop"],
    ["encoder", "result"],
    ["calibration"],
    ["training"],
    ["evaluation", "published", "rivals"],
    ["comparison"],
    ["classifier"],
    ["report", "recipe_report"],
    ["demo", "doctor"],
    ["bench"],
    ["cli"],
    ["__main__"],
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


def test_the_paper_is_free_of_devices_logging_configuration_and_distribution():
    text = (ROOT / "methods" / "psco.py").read_text()
    for word in ("cuda", "logging", "print(", "yaml", "pydantic", "distributed", "fabric"):
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
