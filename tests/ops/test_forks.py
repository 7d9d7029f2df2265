"""A fork after use with several threads: the child computes instead of waiting for lost threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, torch
torch.set_num_threads(2)
from psco.methods import Batch
from psco.recipes.build import build_method
from psco.recipes.recipe import load_recipe

small = ["backbone.width=16", "method.queue_size=256", "heads={hidden: 64, out: 32}"]
method = build_method(load_recipe("glyphs", small))
images = torch.rand(64, 1, 28, 28)

def step():
    method.loss(Batch(images, images, None, 0.0, starts_step=True))[0].backward()
    return torch.rand(500, 500) @ torch.rand(500, 500)

step()
child = os.fork()
if child == 0:
    step()
    os._exit(3 if torch.get_num_threads() == 1 else 4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), torch.get_num_threads())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_process_with_several_threads_does_not_hang():
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert done.stdout.split() == ["3", "2"], done.stderr
