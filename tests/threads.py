"""Work in many threads at once, in tests.

In: what each thread does. Out: nothing, or the first exception of a thread: by themselves threads keep theirs, and a
test that only looks for wrong answers would pass.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


def together(work: Callable[[Any], None], items: Iterable[Any]) -> None:
    """`work(item)` for every item, a thread each."""
    with running(work, items):
        pass


@contextmanager
def running(work: Callable[[Any], None], items: Iterable[Any]) -> Iterator[None]:
    """`together`, beside what the caller does meanwhile."""
    failed: list[BaseException] = []

    def run(item: Any) -> None:
        try:
            work(item)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
