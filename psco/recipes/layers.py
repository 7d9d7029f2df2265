"""Layers of settings: reading recipe files with their bases, and merging them.

A layer remembers the method that its settings were chosen for, and a merged value remembers the
layer it comes from.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any

from psco.errors import InputError, quoted, unknown_name
from psco.files.limited_yaml import parse_yaml
from psco.methods import METHODS
from psco.networks import BACKBONES
from psco.recipes.carry import carried_options
from psco.recipes.schema import LENGTHS, Recipe, read_tree

DEFAULT_METHOD = "psco"
Settings = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """The settings of one recipe file, or of a recipe in memory.

    Parameters
    ----------
    source
        Where they come from, such as ``"recipe omniglot-fast"``.
    settings
        The settings as a tree, without ``base``.
    method
        Name of the method that they were chosen for.
    """

    source: str
    settings: Settings
    method: Any

    def settings_for(self, method: Any, method_settings: Settings) -> Settings:
        """Return the settings that hold for a method.

        For the layer's own method these are all. For another method they are all except those
        which that method sets itself, in ``method_settings``; of the method's options, those that
        both methods have.
        """
        if method == self.method:
            return self.settings
        settings = dict(self.settings)
        for section, own in method_settings.items():
            if not isinstance(own, dict):
                settings.pop(section, None)
            elif isinstance(settings.get(section), dict):
                settings[section] = {k: v for k, v in settings[section].items() if k not in own}
        options = settings.pop("method", None)
        if isinstance(options, dict):
            settings["method"] = carried_options(options, self.method, method)
        return settings


@dataclass(frozen=True)
class Override:
    """A setting that wins over the recipe: ``path`` as ``"method.shots"``, and its new value."""

    path: str
    value: Any
    source: str = "--set"

    @classmethod
    def parse(cls, text: str) -> Override:
        """Read ``"method.shots=5"``; the value is YAML."""
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise InputError(f"--set takes a.b=c, such as method.shots=5, got {quoted(text)}")
        return cls(path.strip(), parse_yaml(value, f"--set {quoted(text)}: {quoted(value)}"))


@dataclass(frozen=True)
class _Value:
    """A value that is not a group of settings, and where it comes from."""

    value: Any
    source: str


class Tree:
    """Settings merged from several layers; each value remembers its source."""

    def __init__(self) -> None:
        self._root: dict[str, Any] = {}

    def merge(self, settings: Settings, source: str) -> None:
        """Merge settings into the tree; they win over its values, one by one."""
        train = settings.get("train")
        if isinstance(train, dict) and any(train.get(name) is not None for name in LENGTHS):
            self._drop_length()
        backbone = settings.get("backbone")
        if isinstance(backbone, dict) and "name" in backbone:
            self._drop_options_unknown_to(backbone["name"])
        merged = _merged(self._root, _tagged(settings, source))
        self._root = merged if isinstance(merged, dict) else {}

    def set(self, override: Override) -> None:
        """Replace one value, or one group of settings as a whole."""
        *parents, last = override.path.split(".")
        if parents == ["train"] and last in LENGTHS:
            self._drop_length()
        if override.path == "backbone.name":
            self._drop_options_unknown_to(override.value)
        node = self._root
        for key in parents:
            inner = node.setdefault(key, {})
            if isinstance(inner, _Value) and inner.value == {}:
                inner = node[key] = {}
            node = inner
            if not isinstance(node, dict):
                raise InputError(
                    f"--set {override.path}: {key!r} is a single value and has no settings inside"
                )
        node[last] = _tagged(override.value, override.source)

    def _drop_length(self) -> None:
        """Forget the length of the run: epochs, steps and minutes replace one another."""
        train = self._root.get("train")
        if isinstance(train, dict):
            for name in LENGTHS:
                train.pop(name, None)

    def _drop_options_unknown_to(self, backbone: Any) -> None:
        """Forget options of the backbone chosen so far that the new one does not have."""
        chosen = self._root.get("backbone")
        if isinstance(chosen, dict) and isinstance(backbone, str) and backbone in BACKBONES:
            options = BACKBONES.options(backbone, {})
            for name in chosen.keys() - options.keys() - {"name"}:
                del chosen[name]

    def plain(self) -> Settings:
        """Return the settings without their sources."""
        settings: Settings = _untagged(self._root)
        return settings

    def sources(self) -> dict[str, str]:
        """Return where each value comes from, by its path, such as ``"method.shots"``."""
        return dict(_sources(self._root, ""))


def recipe_layers(recipe: str | Path | Recipe) -> list[Layer]:
    """Read a recipe and its bases, the lowest base first.

    Raises
    ------
    InputError
        If a recipe does not exist or is not YAML, or the bases form a cycle.
    """
    if isinstance(recipe, Recipe):
        return [Layer("recipe in memory", recipe.model_dump(), recipe.method.name)]
    files = _read_with_bases(str(recipe))[::-1]
    layers: list[Layer] = []
    method: Any = DEFAULT_METHOD
    for number, (name, settings) in enumerate(files, start=1):
        named = settings.get("method")
        method = named.get("name", method) if isinstance(named, dict) else method
        kind = "recipe" if number == len(files) else "base"
        layers.append(Layer(f"{kind} {name}", settings, method))
    return layers


def recipe_names() -> list[str]:
    """Return the names of the recipes that come with the package."""
    return sorted(f.name[:-5] for f in _folder().iterdir() if f.name.endswith(".yaml"))


def recipe_summary(name: str) -> str:
    """Return the first sentence of the comment at the top of a recipe of the package."""
    lines = _folder().joinpath(f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = " ".join(line.removeprefix("#").strip() for line in takewhile(_is_comment, lines))
    return comment.partition(". ")[0].removesuffix(".")


def _is_comment(line: str) -> bool:
    return line.startswith("#")


def method_settings(method: Any) -> Settings:
    """Return the settings that a method changes in every recipe; none for an unknown method."""
    exists = isinstance(method, str) and method in METHODS
    return copy.deepcopy(METHODS[method].settings) if exists else {}


def _read_with_bases(recipe: str) -> list[tuple[str, Settings]]:
    """Return name and settings of a recipe, of its base, of the base's base, ..."""
    files: list[tuple[str, Settings]] = []
    places: list[Path] = []
    base, folder = recipe, Path()
    while True:
        try:
            name, path = _find(base, folder)
        except InputError as error:
            raise (
                InputError(f"recipe {files[-1][0]!r}: base: {error}") if files else error
            ) from None
        if path in places:
            chain = " -> ".join([*(name for name, _ in files), name])
            raise InputError(f"recipe {recipe!r}: its bases form a cycle: {chain}")
        settings = read_tree(path, f"recipe {name!r}")
        base, folder = settings.pop("base", None), path.parent
        files.append((name, settings))
        places.append(path)
        if base is None:
            return files
        if not isinstance(base, str):
            raise InputError(
                f"recipe {name!r}: base must be one recipe's name or YAML file, got {quoted(base)}"
            )


def _find(source: str, folder: Path) -> tuple[str, Path]:
    """Return a recipe's name and its file; the path of a file is relative to ``folder``."""
    if source in recipe_names():
        return source, Path(_folder() / f"{source}.yaml")
    if not source.endswith((".yaml", ".yml")):
        raise unknown_name("recipe", source, recipe_names())
    path = folder / source
    if not path.is_file():
        raise InputError(f"there is no recipe file {str(path)!r}")
    return path.name if folder.parts else source, path.resolve()


def _tagged(value: Any, source: str) -> Any:
    if isinstance(value, dict) and value:
        return {key: _tagged(inner, source) for key, inner in value.items()}
    return _Value(value, source)


def _untagged(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _untagged(inner) for key, inner in node.items()}
    return node.value


def _merged(below: Any, above: Any) -> Any:
    """Merge two groups of settings; ``above`` wins.

    Names keep the order of ``below``, and new ones follow, unless ``above`` names them all: the
    parts of a view apply in order, and a recipe can put them into another one.
    """
    if not isinstance(below, dict):
        return above
    if not isinstance(above, dict):  # `crop: {}` takes the options of the base
        return below if above.value == {} else above
    names = above if below.keys() <= above.keys() else {**below, **above}
    return {
        name: _merged(below[name], above[name])
        if name in below and name in above
        else (above if name in above else below)[name]
        for name in names
    }


def _sources(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for key, inner in node.items():
            yield from _sources(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, node.source


def _folder() -> Any:
    return resources.files("psco.recipes")
