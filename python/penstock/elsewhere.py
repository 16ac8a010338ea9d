# SPDX-License-Identifier: Apache-2.0
"""Points of a sweep, or candidates of a search, on any `concurrent.futures.Executor`. The program hands
out items and takes their answers (sweep/elsewhere.hpp); here chunks of them become tasks.

`--on WHERE` has Python call main() here: WHERE is `dask://HOST:PORT` (dask.distributed) or `processes`
of this machine.
"""

import contextlib
import functools
import os
import queue
import struct
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor
from typing import Any, BinaryIO, Callable, Dict, List, Tuple

from . import _core

_HEAD = struct.Struct("<Ic")  # sweep/messages.cpp
_NUMBER = struct.Struct("<Q")
_SIZE = struct.Struct("<I")
_TASK_S = 0.3  #: what a task takes at most, whose own cost is milliseconds: at the end all wait for the last
_MOST = 4096

_work: Dict[bytes, Any] = {}  # of a worker, by the recipe


def evaluate(recipe: bytes, items: List[bytes]) -> Tuple[float, List[bytes]]:
    """A task: the answers to the first of these items, for as long as a task lasts, and how long they took."""
    start = time.monotonic()
    work = _work.get(recipe)
    if work is None:
        work = _core.RemoteWork(recipe)
        _work.clear()
        _work[recipe] = work
    answers = work.answers(items, _TASK_S)
    return time.monotonic() - start, answers


def _texts_in(body: bytes) -> List[bytes]:
    """Each after its length."""
    texts, at = [], 0
    while at < len(body):
        size, = _SIZE.unpack_from(body, at)
        at += _SIZE.size + size
        texts.append(body[at - size:at])
    return texts


def _slots(executor: Executor) -> int:
    """Tasks in hand at a time: two for each worker, so that none waits for the next."""
    client = getattr(executor, "_client", None)  # Dask's: workers come and go
    if client is not None:
        return 2 * _cores(client, int(time.monotonic()))
    return 2 * (getattr(executor, "_max_workers", None) or os.cpu_count() or 1)


@functools.lru_cache(maxsize=1)
def _cores(client: Any, second: int) -> int:
    """Asks the scheduler once a second."""
    return max(1, sum(client.ncores().values()))


class _Hands:
    """Everything happens on one thread, which is told by the others: the reader, and whoever an
    executor lets say that a task is done (Dask's must not wait for anything)."""

    def __init__(self, executor: Executor, read: BinaryIO, write: BinaryIO):
        self._executor, self._read, self._write = executor, read, write
        self._events: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self._asked = 0  # chunks that were asked for or are in hand
        self._size = 8
        self._recipe = b""
        self._over = False

    def run(self) -> None:
        threading.Thread(target=self._read_all, daemon=True).start()
        try:
            while not self._over:
                self._events.get()()
        except BrokenPipeError:
            pass  # the program has ended, and says why

    def _read_all(self) -> None:
        with self._read:
            while True:
                head = self._read.read(_HEAD.size)
                if len(head) < _HEAD.size:
                    break
                size, kind = _HEAD.unpack(head)
                self._events.put(functools.partial(self._take, kind, self._read.read(size)))
        self._events.put(self._stop)

    def _stop(self) -> None:
        self._over = True

    def _take(self, kind: bytes, body: bytes) -> None:
        if kind == b"s":
            self._stop()
        elif kind == b"i":
            self._recipe = body
            self._want()
        elif kind == b"c":
            self._submit(_texts_in(body))

    def _put(self, kind: bytes, body: bytes) -> None:
        self._write.write(_HEAD.pack(len(body), kind) + body)

    def _want(self) -> None:
        while self._asked < _slots(self._executor):
            self._asked += 1
            self._put(b"w", _NUMBER.pack(self._size))
        self._write.flush()

    def _submit(self, items: List[bytes], alone: bool = False) -> None:
        future = self._executor.submit(evaluate, self._recipe, items)
        future.add_done_callback(
            lambda done: self._events.put(lambda: self._done(done, items, alone)))

    def _done(self, future: Any, items: List[bytes], alone: bool) -> None:
        if future.cancelled():
            raise BrokenExecutor("it has cancelled a task")
        error = future.exception()
        if isinstance(error, BrokenExecutor):
            raise error
        if error is None:
            seconds, answers = future.result()
            self._answers(seconds, answers)
            if len(answers) < len(items):  # slower ones than before: the rest is a task, too
                return self._submit(items[len(answers):])
        elif alone:
            why = f"{type(error).__name__}: {error}".encode()
            self._put(b"l", b"".join(_SIZE.pack(len(text)) + text for text in (items[0], why)))
        else:  # one of them is the reason: which?
            self._asked += len(items)
            for item in items:
                self._submit([item], alone=True)
        self._asked -= 1
        self._want()

    def _answers(self, seconds: float, answers: List[bytes]) -> None:
        for answer in answers:
            self._put(b"r", answer)
        wanted = int(len(answers) * _TASK_S / max(seconds, 1e-6))
        self._size = max(1, min(_MOST, 2 * self._size, wanted))


def serve(executor: Executor, read: BinaryIO, write: BinaryIO) -> None:
    """Computes what the other end hands out until it says that there is no more. Raises what broke
    the executor; the program hears that by the end of our pipe, and keeps the rows that are there."""
    try:
        _Hands(executor, read, write).run()
    finally:
        with contextlib.suppress(OSError):
            write.close()


def executor_at(where: str) -> Any:
    """A context with the executor that `--on` names."""
    if where.startswith(("dask://", "tcp://", "tls://")):
        import distributed

        client = distributed.Client(where.replace("dask://", "tcp://", 1), set_as_default=False)
        return client.get_executor()
    if where == "processes":
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        return ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))
    raise SystemExit(f"penstock: --on {where}: is none of dask://HOST:PORT, processes")


def main() -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program says when to stop
    read, write = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else is printed is no message
    try:
        with executor_at(sys.argv[1]) as executor:
            serve(executor, read, write)
    except (ImportError, OSError, BrokenExecutor) as error:
        sys.exit(f"penstock: --on {sys.argv[1]}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
