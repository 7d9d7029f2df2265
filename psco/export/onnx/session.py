"""Sessions of onnxruntime on the CPU."""

from __future__ import annotations

from typing import Any

from psco.errors import import_optional


def start_session(content: bytes, threads: int = 0) -> Any:
    """Return an onnxruntime session for the content of a file.

    Parameters
    ----------
    content
        The file. Tensors in other files are not looked for in its folder, which is not known here.
    threads
        0 for one per core.
    """
    runtime = import_optional("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # errors are raised anyway
    return runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
