"""The documentation: every path, link, module, command, option, setting and target exists."""

from __future__ import annotations

import importlib
import re
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from psco.cli import app
from psco.methods import METHODS
from psco.networks import BACKBONES
from psco.recipes.schema import Recipe
from psco.views import VIEW_PARTS

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").rglob("README.md")),
]
FENCE = re.compile(r"^ *```.*?\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")
ENTRY_POINTS = {"psco.methods", "psco.rules", "psco.backbones"}
NO_SETTINGS = {("views", "md"), ("heads", "network")}  # a file, an attribute
every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def code(page: Path) -> list[str]:
    """Return the code of a page: its spans, and the lines of its blocks with comments removed."""
    spans = [" ".join(span.split()) for span in SPAN.findall(prose(page))]
    blocks = "".join(FENCE.findall(page.read_text())).replace("\\\n", " ")
    return spans + [re.sub(r"(^|\s)#\s.*", "", line) for line in blocks.splitlines()]


def commands(page: Path) -> list[list[str]]:
    """Return the words after ``psco`` of all calls of the program on a page."""
    calls = (re.search(r"(?:^|(?<!from)\s)psco ([a-z].*)", text) for text in code(page))
    return [re.sub(r"[\[\]|]", " ", call[1]).split() for call in calls if call]


@cache
def help_of(*command: str) -> str:
    shown = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0, f"there is no command psco {' '.join(command)}"
    return shown.output


@cache
def options_of(*command: str) -> frozenset[str]:
    rows = re.findall(r"^\W+(--[\w-]+) +(-\w)?", help_of(*command), re.MULTILINE)
    return frozenset(chain.from_iterable(rows)) - {""}


@cache
def all_options() -> frozenset[str]:
    """Return the options of all commands of psco and of the programs in ``benchmarks``."""
    names = re.findall(r"^│ ([a-z]+) ", help_of() + help_of("data"), re.MULTILINE)
    within = set(re.findall(r"^│ ([a-z]+) ", help_of("data"), re.MULTILINE))
    known = [options_of("data", name) if name in within else options_of(name) for name in names]
    sources = "".join(path.read_text() for path in (ROOT / "benchmarks").rglob("*.py"))
    return frozenset(chain(*known, re.findall(r'"(--[a-z-]+)"', sources)))


def slug(heading: str) -> str:
    """Return the anchor of a heading as GitHub writes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@every_page
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", prose(file), re.MULTILINE)
            assert anchor in map(slug, headings), target


@every_page
def test_paths_of_the_repository_exist(page):
    tops = "psco|tests|docs|benchmarks|results|examples"
    for text in code(page):
        for path in re.findall(rf"(?<![\w./-])(?:{tops})/[\w./*-]+", text):
            assert list(ROOT.glob(path.rstrip("./"))), path


@every_page
def test_modules_and_their_names_exist(page):
    for text in code(page):
        for dotted in re.findall(
            r"(?<![\w/.-])(?:psco|benchmarks)(?:\.(?!py\b)[A-Za-z_]\w*)+", text
        ):
            assert dotted in ENTRY_POINTS or exists(dotted), dotted


def exists(dotted: str) -> bool:
    found: object = importlib.import_module(dotted.split(".")[0])
    name = found.__name__
    for part in dotted.split(".")[1:]:
        name = f"{name}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(name)
            except ModuleNotFoundError:
                return False
    return True


@every_page
def test_commands_and_their_options_exist(page):
    for words in commands(page):
        command = words[:2] if words[0] == "data" and len(words) > 1 else words[:1]
        missing = set(OPTION.findall(" ".join(words))) - options_of(*command)
        assert not missing, f"psco {' '.join(words)}: {missing}"


@every_page
def test_options_that_stand_alone_exist(page):
    for text in SPAN.findall(prose(page)):
        if text.startswith("-"):
            missing = set(re.findall(r"(?<![\w-])--[a-z0-9-]+", text)) - all_options()
            assert not missing, f"{text}: {missing}"


@every_page
def test_recipes_and_methods_that_commands_name_exist(page):
    recipes = {path.stem for path in (ROOT / "psco" / "recipes").glob("*.yaml")}
    for words in commands(page):
        for flag, value in pairwise(words):
            if flag == "--recipe" and value.islower() and "." not in value:
                assert value in recipes, value
            if flag == "--method":
                assert value in {*METHODS, "rotnet"}, value  # rotnet: the example of a new method


@every_page
def test_settings_exist(page):
    for text in code(page):
        for section, name in re.findall(r"(?<![\w./-])([a-z]+)\.([a-z_]+)(?=[.=]|$)", text):
            if section in Recipe.model_fields and (section, name) not in NO_SETTINGS:
                assert name in settings_of(section), f"{section}.{name}"


@cache
def settings_of(section: str) -> set[str]:
    registries = {"method": METHODS, "backbone": BACKBONES}
    if section in registries:
        registry = registries[section]
        rotnet = {"turns"}  # an option of the example of a new method
        return {"name", *rotnet}.union(*(registry.options(name, {}) for name in registry))
    annotation = Recipe.model_fields[section].annotation
    return set(annotation.model_fields)


@every_page
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for text in code(page):
        for target in re.findall(r"^make ([a-z-]+)", text):
            assert target in targets, target


def test_every_view_part_is_described():
    headings = re.findall(r"^## `(\w+)`$", (ROOT / "docs" / "views.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(VIEW_PARTS)


def test_the_checks_see_what_is_wrong(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`psco/gone.py`, `psco.gone`, `psco fit --gone`, `train.gone=1`\n")
    for check in (
        test_paths_of_the_repository_exist,
        test_modules_and_their_names_exist,
        test_commands_and_their_options_exist,
        test_settings_exist,
    ):
        with pytest.raises(AssertionError):
            check(page)
