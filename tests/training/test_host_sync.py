"""A training step never waits for the device: nothing in it reads a tensor back to the host.

On a CPU there is nothing to wait for, so the guard keeps the books instead. Tensors that would be
on the device are marked: the batch, the weights, the buffers and whatever is computed from them.
Random numbers that are drawn on the host, and what follows from them alone, are not, until they
are sent to the device.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import psco
from benchmarks.timing.cases import synthetic_images
from psco.recipes.build import build_method, build_views
from psco.recipes.recipe import load_recipe
from psco.training.feed import Feed
from psco.training.loop import Loop

ROOT = Path(psco.__file__).parent
READS = {
    *(Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.cpu),
    *(Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.__contains__),
    # Of these, the shape or the answer depends on the numbers.
    *(Tensor.nonzero, Tensor.masked_select, Tensor.unique, Tensor.equal, Tensor.allclose),
    *(torch.nonzero, torch.masked_select, torch.unique, torch.equal, torch.allclose),
}
INDEXING = {Tensor.__getitem__, Tensor.__setitem__}
SENT_AT_ONCE = 64 * 1024  # bytes; larger copies from pageable memory wait for all work before them


def is_marked(tensor: Tensor) -> bool:
    return getattr(tensor, "on_device", False)


class HostSyncGuard(TorchFunctionMode):
    """Notes where a marked tensor is read by the host, as lines ``file:line function``."""

    def __init__(self, device_tensors: Iterable[Tensor]) -> None:
        super().__init__()
        self.found: list[str] = []
        for tensor in device_tensors:
            tensor.on_device = True

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        marked = any(map(is_marked, given))
        if marked:
            self._check(function, args)
        result = function(*args, **kwargs)
        moved = function is Tensor.to
        if moved and not is_marked(given[0]) and given[0].nbytes > SENT_AT_ONCE:
            self._note(f"Tensor.to of {given[0].nbytes} bytes of pageable memory")
        if marked or moved:
            for leaf in tree_leaves(result):
                if isinstance(leaf, Tensor):
                    leaf.on_device = True
        return result

    def _check(self, function, args) -> None:
        if function in READS:
            self._note(function.__name__)
        elif function in INDEXING:
            masks = [leaf for leaf in tree_leaves(args[1]) if isinstance(leaf, Tensor)]
            if any(mask.dtype == torch.bool for mask in masks):
                self._note("indexing by a mask")
        elif function is Tensor.to and any(isinstance(a, str) and a == "cpu" for a in args):
            self._note("to('cpu')")

    def _note(self, what: str) -> None:
        frames = [f for f in traceback.extract_stack() if ROOT in Path(f.filename).parents]
        where = (
            f"{Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}" if frames else "?"
        )
        self.found.append(f"{where} {what}")


def make_loop(recipe: str, folder: Path, *overrides: str) -> Loop:
    small = ["backbone.width=8", "heads={hidden: 32, out: 16}", "method.queue_size=512"]
    settled = load_recipe(recipe, [*small, "train.batch_size=256", *overrides])
    image = settled.image
    torch.manual_seed(0)
    feed = Feed(synthetic_images(256, image.source_size, image.channels), 256, 0)
    return Loop(build_method(settled), build_views(settled), feed, settled, folder)


def guarded_step(loop: Loop) -> list[str]:
    """Take two steps, the second under the guard; return what it has found."""
    batches = loop.feed.batches(0)
    loop.method.train()
    loop._take_step(batches)
    images, labels = next(batches)
    guard = HostSyncGuard([images, *loop.method.parameters(), *loop.method.buffers()])
    with guard:
        loop._take_step(iter([(images, labels)]))
    return guard.found


@pytest.mark.parametrize("recipe", ["omniglot", "miniimagenet", "own-images"])
def test_no_step_of_psco_waits_for_the_device(recipe, tmp_path):
    sizes = [] if recipe == "omniglot" else ["image.size=32", "image.source_size=40"]
    assert guarded_step(make_loop(recipe, tmp_path, *sizes)) == []


def test_options_beyond_the_paper_do_not_wait_for_the_device(tmp_path):
    options = ["method.own_view=true", "method.reciprocal=2", "method.spare_shots=true"]
    options += ["method.filled_queue=true", "method.momentum_end=1.0", "train.average_last=1.0"]
    assert guarded_step(make_loop("omniglot", tmp_path, *options)) == []


def test_blurred_views_do_not_wait_for_the_device(tmp_path):
    assert guarded_step(make_loop("omniglot", tmp_path, "views.view_a.blur={}")) == []


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda x: x.sum().item(), "item"),
        (lambda x: float(x.sum()), "__float__"),
        (lambda x: bool(x.sum() > 0), "__bool__"),
        (lambda x: int(x.argmax()), "__int__"),
        (lambda x: x.cpu(), "cpu"),
        (lambda x: x.to("cpu"), "to('cpu')"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x[x > 0], "indexing by a mask"),
        (lambda x: (x > 0).nonzero(), "nonzero"),
    ],
)
def test_the_guard_finds_reads_of_what_was_computed_from_device_tensors(read, name):
    x = torch.ones(3)
    with HostSyncGuard([x]) as guard:
        read((2 * x + torch.zeros(3)).relu())
    assert guard.found == [f"? {name}"]


def test_the_guard_lets_the_host_read_its_own_numbers():
    x = torch.ones(3)
    with HostSyncGuard([x]) as guard:
        int(torch.randint(5, ()))
        own = torch.rand(4)
        assert own[own > 2].tolist() == []
        x * own[:3].to(x.device)
    assert guard.found == []


def test_the_guard_finds_large_copies_from_memory_that_is_not_pinned():
    x = torch.ones(3)
    with HostSyncGuard([x]) as guard:
        torch.zeros(100, 100).to(x)
        torch.zeros(200, 200).to(x)
    assert guard.found == ["? Tensor.to of 160000 bytes of pageable memory"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_no_step_of_psco_synchronises_a_gpu(tmp_path):
    loop = make_loop("omniglot", tmp_path)
    batches = loop.feed.batches(0)
    loop.method.train()
    loop._take_step(batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        loop._take_step(batches)
    finally:
        torch.cuda.set_sync_debug_mode("default")
