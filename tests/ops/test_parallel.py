"""Compiled loops and threads with a core each: the same numbers, and nothing left behind."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch

from psco.evaluation.rules import Heads, adapt_together
from psco.networks import predictor, projector
from psco.ops.parallel import on_one_core_each
from psco.ops.script import compile_script

THREADS = torch.get_num_threads()


@pytest.fixture
def setting():
    """Features and labels of five tasks and heads for them."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        heads = Heads(projector(12, 32, 8).eval(), predictor(8, 32).eval(), 0.5)
        x, xq = torch.randn(5, 6, 12), torch.randn(5, 4, 12)
    return x, torch.tensor([0, 1, 2]).repeat(5, 2), xq, heads


@pytest.fixture
def threads():
    """Let a test change the number of torch's threads."""
    yield torch.set_num_threads
    torch.set_num_threads(THREADS)


def together(setting, steps=10):
    x, labels, xq, heads = setting
    return torch.cat(adapt_together.adapt_together(x, labels, xq, heads, steps), dim=1)


def test_the_steps_of_adaptation_are_compiled_here():
    assert isinstance(adapt_together._compiled_training(), torch.jit.ScriptFunction)


def test_adaptation_is_the_same_without_the_compiler(setting, monkeypatch):
    compiled = together(setting)
    monkeypatch.setattr(adapt_together, "_compiled_training", lambda: adapt_together._train)
    torch.testing.assert_close(together(setting), compiled, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_adaptation_does_not_depend_on_the_number_of_threads(count, setting, threads):
    threads(1)
    alone = together(setting)
    threads(count)
    torch.testing.assert_close(together(setting), alone, rtol=1e-6, atol=1e-6)
    assert torch.get_num_threads() == count


def test_adaptation_works_in_inference_mode(setting, threads):
    threads(2)
    expected = together(setting)
    with torch.inference_mode():
        x, labels, xq, heads = setting
        inside = together((x.clone(), labels.clone(), xq.clone(), heads))
    assert torch.equal(inside, expected)


def test_results_come_in_the_order_of_the_parts_each_from_one_thread(threads):
    threads(3)
    meeting = threading.Barrier(3, timeout=30)  # passed only if three work at once

    def work(part):
        meeting.wait()
        return part, torch.get_num_threads(), threading.get_ident()

    found = on_one_core_each(work, range(6))
    assert [part for part, *_ in found] == list(range(6))
    assert {count for _, count, _ in found} == {1}
    assert threading.get_ident() not in {thread for *_, thread in found}


def test_threads_are_given_back_after_an_error(threads):
    threads(2)

    def fail(part):
        raise ValueError(part)

    with pytest.raises(ValueError, match="0"):
        on_one_core_each(fail, [0, 1])
    assert torch.get_num_threads() == 2
    assert on_one_core_each(lambda part: 2 * part, [1, 2]) == [2, 4]


def test_what_the_compiler_does_not_know_runs_as_it_is():
    def unknown(x: torch.Tensor) -> torch.Tensor:
        return {"double": lambda y: 2 * y}["double"](x)

    assert compile_script(unknown) is unknown


def test_adaptation_runs_where_scripts_are_turned_off_and_warns_of_nothing():
    code = (
        "import torch\n"
        "from psco.networks import predictor, projector\n"
        "from psco.evaluation.rules import RULES, Heads, Embeddings, SupportSet\n"
        "heads = Heads(projector(4, 8, 4).eval(), predictor(4, 8).eval(), 1.0)\n"
        "p = Embeddings(torch.randn(3, 4, 4), torch.randn(3, 4, 4), torch.randn(3, 4, 4))\n"
        "labels = torch.tensor([0, 1, 0, 1]).repeat(3, 1)\n"
        "print(RULES['adapt'](steps=2)(SupportSet(p, labels, 2, heads), p).shape)"
    )
    for setting in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            env={"PYTORCH_JIT": setting, "PATH": ""},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == "torch.Size([3, 4, 2])"
