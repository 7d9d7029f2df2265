"""Load ``psco serve`` with requests at a fixed rate; measure latency, errors and memory.

    python -m benchmarks.serving [--rate 100] [--seconds 60] [--onnx] [--classifier mine.psco]

Without a classifier, a Conv4 of the recipe omniglot-fast with 20 classes and random weights is
used. Requests are due at fixed times, whether or not earlier ones have been answered, and the
latency counts from the time a request was due. Clients share the machine.
"""

from __future__ import annotations

import argparse
import http.client
import io
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from psco.classifier import FewShotClassifier
from psco.evaluation.embed import Encoder
from psco.export.onnx.writing import write_onnx
from psco.recipes.recipe import load_recipe

CLIENTS = 16  # connections
SAMPLE = 1.0  # seconds between two looks at the memory


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--classifier", type=Path, help="a .psco or .onnx file")
    parser.add_argument("--views", type=int, default=0, help="views at test of the default")
    parser.add_argument("--onnx", action="store_true", help="serve the exported default")
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="two seconds, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.rate, options.seconds = 10.0, 2.0
    with tempfile.TemporaryDirectory() as folder:
        path = options.classifier or _classifier(Path(folder), options.views, options.onnx)
        command = [sys.executable, "-m", "psco", "serve", str(path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            place = server.stdout.readline().split("/")[2]
            try:
                load(place, server.pid, options.rate, options.seconds)
            finally:
                server.terminate()


def load(place: str, pid: int, rate: float, seconds: float) -> None:
    """Send the requests and print what was measured."""
    body = _picture()
    latencies: list[float] = []
    answers: Counter[str] = Counter()
    numbers = itertools.count()
    start = time.perf_counter() + 0.5

    def client() -> None:
        connection = http.client.HTTPConnection(place, timeout=60)
        while (due := next(numbers) / rate) < seconds:
            time.sleep(max(0.0, start + due - time.perf_counter()))
            try:
                connection.request("POST", "/classify", body, {"content-type": "image/png"})
                response = connection.getresponse()
                response.read()
                answers[str(response.status)] += 1
            except OSError as error:
                answers[type(error).__name__] += 1
                connection.close()
            latencies.append(time.perf_counter() - start - due)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    memory = []
    while any(thread.is_alive() for thread in threads):
        memory.append(_megabytes(pid))
        time.sleep(SAMPLE)
    passed = time.perf_counter() - start
    done = sum(answers.values())
    p50, p95, p99 = (1000 * float(np.percentile(latencies, q)) for q in (50, 95, 99))
    print(
        f"{done} requests in {passed:.1f} s: {done / passed:.1f} a second; answers {dict(answers)}"
    )
    print(f"latency: median {p50:.1f} ms, 95 % {p95:.1f} ms, 99 % {p99:.1f} ms")
    tenth = max(1, len(memory) // 10)
    early, late = (float(np.mean(part)) for part in (memory[tenth : 2 * tenth], memory[-tenth:]))
    print(
        f"memory: {early:.1f} MB in the second tenth of the time, {late:.1f} MB in the last, "
        f"at most {max(memory):.1f} MB"
    )


def _classifier(folder: Path, views: int, onnx: bool) -> Path:
    encoder = Encoder.untrained(load_recipe("omniglot-fast", [f"views.at_test={views}"]))
    image = encoder.recipe.image
    shape = (20, image.source_size, image.source_size, image.channels)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    classifier = FewShotClassifier(encoder).fit(images, np.arange(20))
    path = folder / ("conv4.onnx" if onnx else "conv4.psco")
    if onnx:
        write_onnx(classifier, path)
    else:
        classifier.save(path)
    return path


def _picture() -> bytes:
    pixels = np.full((105, 105), 255, dtype=np.uint8)
    pixels[20:80, 50:54] = pixels[48:52, 20:90] = 0
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _megabytes(pid: int) -> float:
    """Return the resident memory of a process on Linux."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (kilobytes,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
    return int(kilobytes) / 1000


if __name__ == "__main__":
    main()
