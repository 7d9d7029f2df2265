"""Pictures of concurrent requests, classified together.

The model runs in one thread. Whatever arrives while it runs waits and is the next batch, so a batch
grows with the load, and without load nobody waits for others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from psco.classifier.model import Prediction
from psco.server.serve.model import ServedModel

MOST_PICTURES = 64  # in a batch; the answer must not wait for many others


class Batcher:
    """Runs a model for many requests at a time.

    Parameters
    ----------
    model
        The classifier; it is called by one thread only.

    Attributes
    ----------
    batches, pictures
        How many batches have run, and with how many pictures in all.
    """

    def __init__(self, model: ServedModel) -> None:
        self._model = model
        self._waiting: deque[tuple[np.ndarray, asyncio.Future[Prediction]]] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="psco-model")
        self._task: asyncio.Task[None] | None = None
        self.batches = self.pictures = 0

    async def start(self) -> None:
        """Start to run batches, in the running event loop."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop after the batch that is running; requests that wait are cancelled."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for _, answer in self._waiting:
            answer.cancel()
        self._thread.shutdown(wait=True)

    async def predict(self, images: np.ndarray) -> Prediction:
        """Classify images (n, size, size, channels) uint8, n >= 1, together with others.

        Raises
        ------
        PscoError
            If the model fails; all requests of the batch get the same error.
        """
        answer: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._waiting.append((images, answer))
        self._arrived.set()
        return await answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while batch := self._take():
                images = np.concatenate([images for images, _ in batch])
                try:
                    whole = await loop.run_in_executor(self._thread, self._model.predict, images)
                except Exception as error:  # the next batch may be better
                    for _, answer in batch:
                        if not answer.done():
                            answer.set_exception(error)
                    continue
                self.batches += 1
                self.pictures += len(images)
                _hand_out(whole, batch)

    def _take(self) -> list[tuple[np.ndarray, asyncio.Future[Prediction]]]:
        """Remove the next batch from the queue: at least one request, if any still waits."""
        batch: list[tuple[np.ndarray, asyncio.Future[Prediction]]] = []
        total = 0
        while self._waiting:
            images, answer = self._waiting[0]
            if batch and total + len(images) > MOST_PICTURES:
                break
            self._waiting.popleft()
            if not answer.done():  # a client may have gone
                batch.append((images, answer))
                total += len(images)
        return batch


def _hand_out(
    whole: Prediction, batch: list[tuple[np.ndarray, asyncio.Future[Prediction]]]
) -> None:
    start = 0
    for images, answer in batch:
        own = slice(start, start + len(images))
        start = own.stop
        if not answer.done():
            answer.set_result(Prediction(*(values[own] for values in whole)))
