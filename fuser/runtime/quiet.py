"""Keeping the interpreter's garbage collector out of the way of work that only makes things that stay.

In: nothing. Out: context managers, which serve as decorators too. Importing, planning and compiling fill memory with
objects that live on; the collector, called for every seven hundred of them, would look through all of the process's
objects again and again and find nothing: a tenth of the time of planning 10,000 operators, and it grew faster than they
do.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """No collections within, if there were any before. Threads may nest these in any order: the first to come is the
    one that switches on again."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def importing() -> Iterator[None]:
    """The same for imports. What they made counts as old afterwards, so that it is not walked as soon as collections
    are on again (twenty thousand objects, some 5 ms). Not where the program itself has set objects apart (`gc.freeze`):
    there is no other way back than for all of them."""
    with collection_paused():
        yield
        if gc.get_freeze_count() == 0:
            gc.freeze()
            gc.unfreeze()
