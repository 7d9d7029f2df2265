"""The queue that reproduces tables: shared runs, resuming, locks, missing and damaged data."""

from __future__ import annotations

import json
import multiprocessing
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import psco
from psco.cli import app
from psco.cli.common import repeat_flags
from psco.evaluation.tables.reader import read_table
from psco.experiments.reproduce.budget import Budget, fraction_done
from psco.experiments.reproduce.costs import Costs, best_processes
from psco.experiments.reproduce.jobs import row_tests, table_jobs
from psco.experiments.reproduce.outputs import write_outputs
from psco.experiments.reproduce.queue import work_through
from psco.experiments.reproduce.requests import Request, add_requests, read_requests
from psco.experiments.reproduce.results import table_result
from psco.experiments.reproduce.sets import DataSets, evenly_spaced
from psco.experiments.reproduce.work import is_complete
from psco.files.lock import file_lock
from psco.methods import METHODS
from psco.methods.moco import MoCo
from psco.recipes.build import build_views
from psco.recipes.recipe import load_recipe
from psco.report.reproduction import from_first, to_markdown

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"

HEAD = """
title: A trial on the glyphs
data: glyphs
recipe: glyphs
set: [backbone.width=8, "heads={hidden: 32, out: 16}", train.batch_size=60, train.warmup_steps=0,
      train.log_steps=1, train.steps=2, %s]
tasks: 6
slow_tasks: 2
columns: {glyphs: [[5, 1], [5, 5]]}
"""
ROWS = """
rows:
  - {name: PsCo, paper: [96.37 ± 0.20, 99.13]}
  - {name: K = 1, set: [method.shots=1]}
  - {name: MoCo, method: moco, paper: [50, null], transductive: true}
  - {name: Later, method: no-such-method, paper: [10, 20]}
"""


@pytest.fixture(scope="module")
def sets():
    return DataSets(progress=False)


@pytest.fixture
def empty_root(tmp_path):
    """Return a folder of data sets in which all but an empty one are missing."""
    (tmp_path / "data" / "isic").mkdir(parents=True)
    return tmp_path / "data"


@pytest.fixture
def write(tmp_path):
    """Write an experiment file and return its table."""

    def make(rows=ROWS, change="train.seed=0", head=HEAD, name="trial"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(head % change + rows)
        return read_table(path)

    return make


def queue(table, sets, seeds=(0,), **options):
    return table_jobs([table], Budget(), seeds, sets, **options)


def finish(table, out, sets, seeds=(0,)):
    outcome = work_through(queue(table, sets, seeds), out, sets, progress=False)
    assert outcome.stopped_by is None
    return outcome


def result(table, out, sets, seeds=(0,), budget="paper", given=()):
    request = Request(table.file, budget, tuple(seeds), given=given)
    return table_result(table, request, out, sets, Costs(out, sets, measure=False))


def means(table, out, sets):
    rows = result(table, out, sets)["rows"]
    return [cell["ours"] and cell["ours"]["mean"] for row in rows for cell in row["cells"]]


# ------------------------------------------------------------------------------------- the queue


def test_rows_with_the_same_settings_share_a_run_within_and_between_tables(write, sets):
    first, second = write(), write(name="other")
    jobs = table_jobs([first, second], Budget(), (0, 1), sets)
    assert [job.recipe.method.name for job in jobs] == ["psco", "moco"] * 2
    assert [job.recipe.train.seed for job in jobs] == [0, 0, 1, 1]
    assert all(job.tables == ["trial", "other"] and len(job.tests) == 2 for job in jobs)


def test_psco_of_the_paper_is_one_run_for_all_tables_on_a_data_set(monkeypatch, empty_root):
    monkeypatch.setenv("PSCO_DATA", str(empty_root))
    names = ["table1-miniimagenet", "table2", "augmentation", "shots", "momentum", "temperature"]
    names += ["adaptation", "purity", "overlap", "adaptation-curves"]
    jobs = table_jobs([read_table(name) for name in names], Budget(), (0,), DataSets())
    assert [set(job.tables) for job in jobs if set(job.tables) == set(names)] == [set(names)]
    assert all(job.problem and "mini_imagenet/" in job.problem for job in jobs)


def test_only_the_rows_of_chosen_methods_are_trained(write, sets):
    assert [job.recipe.method.name for job in queue(write(), sets, methods=["moco"])] == ["moco"]


def test_a_finished_queue_has_all_results_and_is_left_alone(write, sets, tmp_path):
    table, out = write(), tmp_path / "out"
    assert len(finish(table, out, sets).finished) == 2
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}
    assert len(finish(table, out, sets).finished) == 2
    assert before == {path: path.stat().st_mtime_ns for path in before}
    numbers = means(table, out, sets)
    assert numbers[:2] == numbers[2:4]  # one run, two rows
    assert None not in numbers[:6]
    assert numbers[6:] == [None, None]


def test_time_that_is_over_stops_the_queue_and_the_next_call_continues_it(write, sets, tmp_path):
    table, out = write(), tmp_path / "out"
    outcome = work_through(queue(table, sets), out, sets, minutes=1e-9, progress=False)
    assert outcome.stopped_by == "time"
    assert not outcome.finished
    assert len(finish(table, out, sets).finished) == 2


def test_training_stops_at_a_checkpoint_when_the_time_is_over(write, sets, tmp_path):
    table, out = write(change="train.steps=100000"), tmp_path / "out"
    (job, *_) = queue(table, sets)
    outcome = work_through([job], out, sets, minutes=0.02, progress=False)
    assert outcome.stopped_by == "time"
    steps = psco.load(job.folder(out) / "run").steps
    assert 0 < steps < 100000


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_command_that_was_ended_at_any_moment_is_continued(number, write, sets, tmp_path):
    rows = "\nrows: [{name: PsCo}]"
    table, out = write(rows, "train.steps=60"), tmp_path / "out"
    words = [sys.executable, "-m", "psco", "reproduce", table.file, "--out", str(out)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    (job,) = queue(table, sets)
    metrics = job.folder(out) / "run" / "metrics.csv"
    while child.poll() is None and not (metrics.is_file() and len(metrics.read_text()) > 200):
        time.sleep(0.01)
    child.send_signal(number)
    _, errors = child.communicate(timeout=120)
    if child.returncode and number != signal.SIGKILL:
        assert "the same command continues" in errors
    assert not is_complete(job, out, sets)
    finish(table, out, sets)
    finish(table, tmp_path / "whole", sets)
    assert means(table, out, sets) == means(table, tmp_path / "whole", sets)


# ------------------------------------------------------------------------------- several processes


def _hold(path, ready, leave):
    with file_lock(path):
        ready.set()
        leave.wait(60)


def test_a_run_in_the_hands_of_another_process_is_passed_over(write, sets, tmp_path):
    table, out = write(), tmp_path / "out"
    first, second = queue(table, sets)
    context = multiprocessing.get_context("spawn")
    ready, leave = context.Event(), context.Event()
    lock = out / "locks" / f"{first.name}.lock"
    holder = context.Process(target=_hold, args=(lock, ready, leave))
    holder.start()
    assert ready.wait(60)
    outcome = finish(table, out, sets)
    assert (outcome.finished, outcome.busy) == ([second.name], [first.name])
    assert not first.folder(out).exists()
    holder.kill()  # which frees the lock
    holder.join()
    assert finish(table, out, sets).finished == [first.name, second.name]


def test_two_processes_share_the_queue(write, sets, tmp_path, psco):
    rows = "\nrows: [{name: a}, {name: b, method: moco}, {name: c, method: simclr}]"
    table, out = write(rows), tmp_path / "out"
    run = psco("reproduce", table.file, "--out", out, "--parallel", "2")
    assert run.returncode == 0, run.stderr
    assert all(is_complete(job, out, sets) for job in queue(table, sets))
    lines = [line for line in run.stderr.splitlines() if "100%" in line and "loss" in line]
    assert len(lines) == 3  # each run was trained once
    assert (out / "reproduction.html").is_file()


# ----------------------------------------------------------------------------- what may be missing


def test_a_missing_test_set_leaves_its_columns_empty_and_names_the_files(
    write, tmp_path, monkeypatch, empty_root
):
    monkeypatch.setenv("PSCO_DATA", str(empty_root))
    sets, out = DataSets(progress=False), tmp_path / "out"
    head = HEAD.replace("columns: {", "columns: {cub: [[5, 5]], ")
    table = write("\nrows: [{name: PsCo, paper: [1, 2, 3]}]", head=head)
    outcome = finish(table, out, sets)
    assert "no cub/ in" in outcome.problems["cub"]
    assert len(outcome.finished) == 1
    cub, *glyphs = result(table, out, sets)["rows"][0]["cells"]
    assert cub["ours"] is None
    assert cub["why"].startswith("Data missing: cub. Needed: a folder of images for each class")
    assert str(tmp_path) not in cub["why"]  # the page may be published
    assert all(cell["ours"] for cell in glyphs)


def test_a_missing_training_set_does_not_keep_other_tables_from_running(
    write, tmp_path, monkeypatch, empty_root
):
    monkeypatch.setenv("PSCO_DATA", str(empty_root))
    sets = DataSets(progress=False)
    tables = [read_table("table3"), write()]
    jobs = table_jobs(tables, Budget(), (0,), sets)
    outcome = work_through(jobs, tmp_path / "out", sets, progress=False)
    assert "no imagenet/ in" in outcome.problems["imagenet"]
    assert len(outcome.finished) == 2


def test_results_are_still_shown_when_the_data_are_gone(write, sets, tmp_path, pictures):
    from PIL import Image

    folder = tmp_path / "own"
    for number, picture in enumerate(pictures):
        path = folder / f"class{number // 30}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture[..., 0]).save(path)
    head = HEAD.replace("data: glyphs", f"data: {folder}").replace("glyphs: [[5", f"{folder}: [[2")
    table = write("\nrows: [{name: PsCo}]", "train.batch_size=30", head.replace("[5, 5]", "[2, 5]"))
    finish(table, tmp_path / "out", sets)
    shown = means(table, tmp_path / "out", sets)
    assert None not in shown
    folder.rename(tmp_path / "elsewhere")
    assert means(table, tmp_path / "out", DataSets(progress=False)) == shown


@pytest.mark.parametrize("file", ["config.yaml", "resume.pt"])
def test_a_damaged_run_folder_is_named_set_aside_and_run_again(file, write, sets, tmp_path, capsys):
    table, out = write("\nrows: [{name: PsCo}]"), tmp_path / "out"
    finish(table, out, sets)
    expected = means(table, out, sets)
    (job,) = queue(table, sets)
    folder = job.folder(out)
    damaged = folder / "run" / file
    damaged.write_bytes(damaged.read_bytes()[:-20] + b"x" * 20)
    (folder / "done.json").unlink()
    finish(table, out, sets)
    said = capsys.readouterr().err
    assert str(damaged) in said
    assert f"set aside as {folder.name}.damaged-1" in said
    assert (out / "runs" / f"{folder.name}.damaged-1" / "run" / file).is_file()
    assert means(table, out, sets) == expected


def test_a_damaged_result_is_computed_again(write, sets, tmp_path):
    table, out = write("\nrows: [{name: PsCo}]"), tmp_path / "out"
    finish(table, out, sets)
    expected = means(table, out, sets)
    (job,) = queue(table, sets)
    for path in (job.folder(out) / "tests").iterdir():
        path.write_text(path.read_text().replace('"mean": ', '"mean": 1'))
    assert not is_complete(job, out, sets)
    finish(table, out, sets)
    assert means(table, out, sets) == expected


# ------------------------------------------------------------------------ what identifies a result


def test_a_changed_default_of_a_method_never_passes_for_the_old_run(
    write, sets, tmp_path, monkeypatch
):
    table, out = write("\nrows: [{name: own, method: own}]"), tmp_path / "out"

    class Own(MoCo):
        def __init__(self, networks, sharpness: float = 5.0) -> None:
            super().__init__(networks, queue_size=120, temperature=1 / sharpness)

    class Changed(Own):
        def __init__(self, networks, sharpness: float = 3.0) -> None:
            super().__init__(networks, sharpness)

    monkeypatch.setitem(METHODS._defaults, "own", {})
    monkeypatch.setitem(METHODS._entries, "own", Own)
    finish(table, out, sets)
    assert None not in means(table, out, sets)
    (old,) = queue(table, sets)
    monkeypatch.setitem(METHODS._entries, "own", Changed)
    assert means(table, out, sets) == [None, None]
    (new,) = queue(table, sets)
    assert new.name != old.name
    assert not is_complete(new, out, sets)


def test_a_changed_setting_of_the_recipe_is_another_run(write, sets, tmp_path):
    names = {job.name for job in queue(write(), sets)}
    assert names.isdisjoint(job.name for job in queue(write(change="train.weight_decay=0"), sets))
    other = table_jobs([write()], Budget("2e"), (0,), sets)
    assert names.isdisjoint(job.name for job in other)


def test_rules_options_and_tasks_identify_a_result(write):
    rows = "\nrows: [{rule: adapt}, {rule: adapt, options: {steps: 50}}, {rule: adapt, options: "
    table = write(rows + "{steps: 5}}, {rule: prototype}]")
    names = [row_tests(table, row, None)[0].name for row in table.rows]
    assert names[0] == names[1]  # the default, written out
    assert len(set(names)) == 3
    assert row_tests(table, table.rows[0], 3)[0].name not in names


def test_a_method_that_is_registered_later_gets_its_row_filled(write, sets, tmp_path, monkeypatch):
    table = write()
    assert result(table, tmp_path, sets)["rows"][3]["why"] == "not implemented"
    monkeypatch.setitem(METHODS._defaults, "no-such-method", {})
    monkeypatch.setitem(METHODS._entries, "no-such-method", MoCo)
    assert "no-such-method" in [job.recipe.method.name for job in queue(table, sets)]
    assert result(table, tmp_path, sets)["rows"][3]["why"] == "2 steps of training to go"


def test_columns_with_more_ways_than_a_network_has_stay_empty_and_the_others_are_filled(
    write, sets, tmp_path
):
    head = HEAD.replace("[[5, 1], [5, 5]]", "[[5, 1], [6, 1]]")
    steps = "method.inner_steps=1, method.test_steps=1"
    rows = f"\nrows: [{{method: maml, set: [method.ways=5, {steps}]}}]\n"
    table = write(rows, head=head)
    outcome = finish(table, tmp_path / "out", sets)
    five, six = means(table, tmp_path / "out", sets)
    assert five is not None
    assert six is None
    (problem,) = outcome.problems.values()
    assert problem.endswith("tested on glyphs: 6 ways, trained for 5")


# ------------------------------------------------------------------------------ budgets and output


def test_budgets_set_the_length_and_their_fraction_of_the_recipe():
    full = load_recipe("omniglot").train
    epochs = load_recipe("omniglot", Budget("40e").overrides).train
    assert (epochs.epochs, epochs.minutes) == (40, None)
    assert load_recipe("omniglot", Budget("10m").overrides).train.minutes == 10
    assert Budget("paper").overrides == []
    assert fraction_done(full, steps=100, epochs=40) == 0.1
    for text in ("ten", "0e", "-1m", "5", "1h"):
        with pytest.raises(psco.InputError, match="--budget takes paper, epochs such as 40e"):
            Budget(text)


def test_seeds_are_averaged_task_by_task_and_counted(write, sets, tmp_path):
    table, out = write("\nrows: [{name: PsCo, paper: [50, 50]}]"), tmp_path / "out"
    finish(table, out, sets, seeds=(0, 1))
    (row,) = result(table, out, sets, seeds=(0, 1, 2))["rows"]
    ours = row["cells"][0]["ours"]
    assert (row["seeds"], ours["seeds"]) == ([0, 1], [0, 1])
    assert ours["mean"] == pytest.approx(sum(ours["each"]) / 2)
    assert row["cells"][0]["difference"] == pytest.approx(ours["mean"] - 50)


def test_rows_without_numbers_of_the_paper_are_compared_with_the_first_task_by_task(
    write, sets, tmp_path
):
    rows = "\nrows: [{name: base}, {name: ridge, rule: ridge}, {name: MoCo, method: moco}]"
    table, out = write(rows), tmp_path / "out"
    finish(table, out, sets, seeds=(0, 1))
    base, ridge, moco = result(table, out, sets, seeds=(0, 1))["rows"]
    assert base["cells"][0]["from_first"] is None
    jobs = queue(table, sets, seeds=(0, 1))

    def per_task(method, rule, seed):
        (job,) = (j for j in jobs if (j.recipe.method.name, j.recipe.train.seed) == (method, seed))
        (file,) = (job.folder(out) / "tests").glob(f"glyphs-5-1-{rule}-*.json")
        return np.array(json.loads(file.read_text())["per_task"])

    for row, method, rule in ((ridge, "psco", "ridge"), (moco, "moco", "knn")):
        gaps = [per_task(method, rule, s) - per_task("psco", "prototype", s) for s in (0, 1)]
        found = row["cells"][0]["from_first"]
        assert found["each"] == pytest.approx([gap.mean() for gap in gaps])
        spread = np.mean(gaps, axis=0).std(ddof=1) / np.sqrt(len(gaps[0]))
        assert found["mean"] == pytest.approx(np.mean(gaps))
        assert found["ci95"] >= 1.95 * spread
    text = to_markdown([result(table, out, sets, seeds=(0, 1))])
    assert f"{from_first(moco['cells'][0]['from_first'])} |" in text


def test_a_subset_of_the_training_images_is_another_run(write, sets, tmp_path):
    rows = "\nrows: [{name: all}, {name: few, images: 300}, {name: fewer, images: 120}]"
    table, out = write(rows), tmp_path / "out"
    finish(table, out, sets)
    steps = {
        row["name"]: round(2 / row["epochs"]) for row in result(table, out, sets)["rows"]
    }  # of an epoch, in batches of 60
    assert steps == {"all": 333, "few": 5, "fewer": 2}
    images = sets.load("glyphs", "train", load_recipe("glyphs").image)
    few = evenly_spaced(images, 300)
    assert len(np.unique(few.labels)) == 300
    assert (few.images[100] == images.images[100 * len(images) // 300]).all()
    (job,) = queue(write("\nrows: [{images: 20001}]"), sets)
    assert "images must be at most 20000" in job.problem


def test_a_given_run_is_tested_as_a_further_row_even_when_it_is_gone(write, sets, tmp_path, psco):
    table = write("\nrows: [{name: PsCo, paper: [50, 60]}]")
    out, mine = tmp_path / "out", tmp_path / "mine"
    words = ["--recipe", "glyphs", "--set", "backbone.width=8", "heads.hidden=32", "train.steps=1"]
    assert psco("pretrain", "glyphs", "--out", mine, *words).returncode == 0
    run = psco("reproduce", table.file, "--out", out, "--encoder", mine, "--json")
    assert run.returncode == 0, run.stderr
    shutil.rmtree(mine)
    (name,) = read_requests(out)[0].given
    own, given = result(table, out, sets, given=(name,))["rows"]
    assert (given["name"], given["group"], given["why"]) == ("mine", "Given runs", "")
    assert given["cells"][0]["ours"]["mean"] != own["cells"][0]["ours"]["mean"]
    assert given["cells"][0]["paper"] is None
    assert json.loads(run.stdout)[0]["rows"][1] == given


def test_a_folder_that_is_no_run_is_refused_as_encoder(write, tmp_path, psco):
    run = psco("reproduce", write().file, "--out", tmp_path / "o", "--encoder", tmp_path)
    assert run.returncode == 2
    assert "--encoder takes the folder of a finished run" in run.stderr
    assert not (tmp_path / "o").exists()


def test_processes_side_by_side_are_chosen_when_a_thread_of_their_own_is_faster(
    write, sets, tmp_path, monkeypatch
):
    threads = torch.get_num_threads()
    jobs = queue(write("\nrows: [{name: a}, {name: b, set: [train.seed=5]}]"), sets, (0, 1))
    for alone, best in ((1.5, 2), (2.5, 1)):
        monkeypatch.setattr(
            Costs,
            "_step",
            lambda *_, alone=alone: (alone if torch.get_num_threads() == 1 else 1.0, 5),
        )
        torch.set_num_threads(2)
        try:
            assert best_processes(jobs, tmp_path, sets) == best
            assert torch.get_num_threads() == 2
            assert best_processes(jobs[:1], tmp_path, sets) == 1
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_row_of_a_study_is_a_recipe_that_differs_from_its_base(path):
    table = read_table(path)
    base = load_recipe(table.recipe, table.set)
    assert table.compares_rows
    assert table.split == "val"
    for row in table.rows[1:]:
        named = [f"method.name={row.method}"]
        recipe = load_recipe(row.recipe or table.recipe, [*table.set, *named, *row.set])
        assert recipe != base or row.rule or row.images != table.images
        build_views(recipe)


def test_a_curve_of_training_is_kept_with_its_epochs(write, sets, tmp_path):
    head = HEAD.replace("columns: {glyphs: [[5, 1], [5, 5]]}", "curve: overlap")
    table, out = write("\nrows: [{name: PsCo}]", head=head), tmp_path / "out"
    finish(table, out, sets)
    (curve,) = result(table, out, sets)["rows"][0]["curves"]
    assert [round(epoch * 333) for epoch, _ in curve["points"]] == [1, 2]
    assert all(0 <= overlap <= 1 for _, overlap in curve["points"])


def test_requests_are_remembered_and_their_seeds_joined(tmp_path):
    add_requests(tmp_path, [Request("a", "paper", (0,)), Request("b", "2e", (0,))])
    add_requests(tmp_path, [Request("a", "paper", (2, 1)), Request("a", "2e", (0,))])
    found = [(r.table, r.budget, r.seeds) for r in read_requests(tmp_path)]
    assert found == [("a", "paper", (0, 1, 2)), ("b", "2e", (0,)), ("a", "2e", (0,))]


def test_the_page_has_every_table_of_the_paper_and_the_own_one(
    write, tmp_path, monkeypatch, empty_root
):
    monkeypatch.setenv("PSCO_DATA", str(empty_root))
    sets, table, out = DataSets(progress=False), write(), tmp_path / "out"
    add_requests(out, [Request(table.file, "paper", (0,))])
    finish(table, out, sets)
    shown = write_outputs(out, sets)
    page, text = (out / "reproduction.html").read_text(), (out / "results.md").read_text()
    for found in (page, text):
        assert "Table 2 and Table 14" in found
        assert "A trial on the glyphs" in found
        assert "not implemented" in found
        assert "96.37 ± 0.20" in found
        assert "are transductive" in found
        assert "glyphs is not a data set of the paper" in found
    assert not re.search(r"(src|href)=.(http|//|/)", page)
    assert json.loads((out / "results.json").read_text())["tables"] == shown


# ------------------------------------------------------------------------------------- the command


def test_a_dry_run_shows_the_queue_and_writes_nothing(write, tmp_path, psco):
    table, out = write(), tmp_path / "out"
    run = psco("reproduce", table.file, "--out", out, "--dry-run", "--seeds", "0", "1", "--json")
    facts = json.loads(run.stdout)
    assert [fact["state"] for fact in facts] == ["to train"] * 4
    assert not out.exists()


def test_the_command_prints_ours_and_the_papers_and_continues_on_a_second_call(
    write, tmp_path, psco
):
    table, out = write(), tmp_path / "out"
    words = ["reproduce", table.file, "--out", out, "--json"]
    first, second = psco(*words), psco(*words)
    assert first.returncode == second.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    (shown,) = json.loads(first.stdout)
    assert shown["rows"][0]["cells"][0]["paper"] == {"mean": 96.37, "ci95": 0.2}
    assert shown["rows"][0]["cells"][0]["ours"]["tasks"] == 6


def test_bad_words_on_the_command_line_are_explained(write, capsys):
    table = write()
    for words, message in {
        ("tabel2",): "did you mean 'table2'",
        ("table2", "--budget", "5"): "--budget takes paper",
        (table.file, "--methods", "mocco"): "did you mean 'moco'",
        (table.file, "--seeds", "0", "0"): "--seeds must be different",
        (table.file, "--tasks", "1"): "--tasks must be at least 2",
        (table.file, "--parallel", "0"): "--parallel must be at least 1",
    }.items():
        assert app(repeat_flags(["reproduce", *words]), standalone_mode=False) == 2
        said = capsys.readouterr().err
        assert message in said
        assert len(said.splitlines()) == 1


def test_a_lock_is_held_by_one_process_and_free_after_it(tmp_path):
    with file_lock(tmp_path / "a") as first, file_lock(tmp_path / "a", wait=False) as second:
        assert (first, second) == (True, False)
    with file_lock(tmp_path / "a", wait=False) as again:
        assert again
