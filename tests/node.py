"""Runs the scripts of the page in node, without a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from psco.export.page import page_script

CORE = (
    *("bytes.js", "pixels.js", "views.js", "network.js", "confidence.js", "classes.js"),
    "storage.js",
)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def run_node(folder: Path, body: str, given: object = None) -> Any:
    """Run ``body``, a function of `given` that returns JSON, after the scripts of the page."""
    script, file = folder / "script.js", folder / "given.json"
    file.write_text(json.dumps(given))
    script.write_text(
        f'"use strict";\n{page_script(CORE)}\n'
        f'const fs = require("fs");\n'
        f"const given = JSON.parse(fs.readFileSync({json.dumps(str(file))}));\n"
        f"console.log(JSON.stringify(((given) => {{\n{body}\n}})(given)));\n"
    )
    done = subprocess.run(["node", str(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
