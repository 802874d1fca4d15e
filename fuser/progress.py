"""Long work shows itself: what is being done, how far it is, and how long the rest will take.

In: work that says what it goes through (`track`, `task`). Out: bars on stderr, where a command asked for them (`shown`)
and a person is watching; anywhere else nothing, at no cost. Its own file because generating data, compiling, measuring,
tuning, the reference and the benchmarks all say it alike, and none of them should know how it is drawn (by `rich`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 0.5  # seconds that people wait without wondering: shorter work shows no moving bars
REDRAW = 0.25  # seconds between two drawings, at least


class Task:
    """One piece of work under way. This one is not watched; `_Drawn` is."""

    def advance(self, count: int = 1, now: str | None = None) -> None:
        """`count` more of the total are done; `now`: what is at work."""

    def expect(self, total: int) -> None:
        """The total turned out to be another."""


class _Drawn(Task):
    """Work that a line on the terminal stands for."""

    def __init__(self, screen: _Screen, what: str, total: int | None, depth: int) -> None:
        self._screen, self.what, self.total, self.depth = screen, what, total, depth
        self.done, self.now, self.key = 0, "", None
        self.begun = self.advanced = time.perf_counter()

    def advance(self, count: int = 1, now: str | None = None) -> None:
        self.done += count
        if self.total is not None:
            self.total = max(self.total, self.done)
        if count:
            self.advanced = time.perf_counter()
        self.now = self.now if now is None else now
        self._screen.changed(self)

    def expect(self, total: int) -> None:
        self.total = max(total, self.done)
        self._screen.changed(self)

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take at the pace so far; None before anything is done."""
        if self.total is None or not self.done:
            return None
        whole = (self.advanced - self.begun) * self.total / self.done
        return max(whole - (time.perf_counter() - self.begun), 0.0)


class _Screen:
    """The bars of one command. `still`: nothing is drawn but between steps of the outermost work, because a thread that
    draws beside what is being measured would be measured too."""

    def __init__(self, still: bool) -> None:
        self._still, self._lock = still, threading.RLock()
        self._tasks: list[_Drawn] = []
        self._bars: Any = None
        self._drawn = -REDRAW
        self._paused = 0
        self._timer: threading.Timer | None = None
        if still:
            self._bars = _bars(animated=False)  # now: what is measured later should not wait for rich
        else:
            self._timer = threading.Timer(PATIENCE, self._draw)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._paused += 1  # for good
            self._erase()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Bars out of the way of lines that are printed."""
        with self._lock:
            self._paused += 1
            self._erase()
            try:
                yield
            finally:
                self._paused -= 1
                if self._bars is not None:
                    self._draw()

    def add(self, task: _Drawn) -> None:
        with self._lock:
            self._tasks.append(task)
            self.changed(task)

    def remove(self, task: _Drawn) -> None:
        with self._lock:
            self._tasks.remove(task)
            if self._bars is not None and task.key is not None:
                self._bars.remove_task(task.key)

    def depth(self) -> int:
        return len(self._tasks)

    def changed(self, task: _Drawn) -> None:
        """Show a task as it now is."""
        now = time.perf_counter()
        if self._still and (task.depth or now - self._drawn < REDRAW):
            return
        with self._lock:
            if self._bars is not None:
                self._draw()

    def _draw(self) -> None:
        with self._lock:
            if self._paused:
                return
            if self._bars is None:
                self._bars = _bars(animated=True)
            for task in self._tasks:
                if self._still and task.depth:
                    continue
                if task.key is None:
                    task.key = self._bars.add_task(task.what, total=task.total, task=task)
                self._bars.update(task.key, total=task.total, completed=task.done)
            self._bars.start()
            if self._still:
                self._bars.refresh()
            self._drawn = time.perf_counter()

    def _erase(self) -> None:
        if self._bars is not None:
            self._bars.stop()


def _bars(animated: bool) -> Any:
    """rich's bars, drawn over again in place and erased at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class _Terminal(Console):
        def show_cursor(self, show: bool = True) -> bool:
            return False  # it is never hidden, so that no way to end this process can leave it so

    class _State(ProgressColumn):
        max_refresh = None

        def render(self, task: Any) -> Text:
            mine: _Drawn = task.fields["task"]
            done = "" if mine.total is None else f"{units_of(mine.done, mine.total)}  "
            left = f", {clock(mine.left)} left" if mine.left and mine.left >= 1 else ""
            spent = clock(time.perf_counter() - mine.begun)
            return Text(f"{done}{spent}{left}  {mine.now}".rstrip(), no_wrap=True, overflow="ellipsis")

    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(bar_width=24), _State(),
        console=_Terminal(stderr=True), transient=True, auto_refresh=animated, refresh_per_second=1 / REDRAW,
        redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip


def clock(seconds: float) -> str:
    """A duration: `7 s`, `2:07`, `1:02:07`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def units_of(done: int, total: int) -> str:
    """`3/17`; beyond what people count, per cent."""
    return f"{done}/{total}" if total < 10_000 else f"{done / total:4.0%}"


_screen: ContextVar[_Screen | None] = ContextVar("_screen", default=None)


def watched() -> bool:
    """Whether stderr is a terminal that can redraw a line."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


@contextmanager
def shown(quiet: bool = False, still: bool = False) -> Iterator[None]:
    """Long work in this block shows bars on stderr, where that is a terminal. quiet: not even there. still: drawn
    between the steps of the outermost work only, for what is being measured."""
    if quiet or not watched() or _screen.get() is not None:
        yield
        return
    screen = _Screen(still)
    token = _screen.set(screen)
    try:
        yield
    finally:
        _screen.reset(token)
        screen.close()


@contextmanager
def task(what: str, total: int | None = None, now: str = "") -> Iterator[Task]:
    """A piece of work of `total` steps, or of unknown length."""
    screen = _screen.get()
    if screen is None:
        yield Task()
        return
    drawn = _Drawn(screen, what, total, screen.depth())
    drawn.now = now
    screen.add(drawn)
    try:
        yield drawn
    finally:
        screen.remove(drawn)


def track(items: Sequence[T], what: str, name: Callable[[T], str] | None = None) -> Iterator[T]:
    """The items, one after the other, as steps of a piece of work; `name`: what to call the one at work."""
    with task(what, len(items)) as steps:
        for item in items:
            steps.advance(0, None if name is None else name(item))
            yield item
            steps.advance()


@contextmanager
def aside() -> Iterator[None]:
    """Print lines in this block: the bars make way for them."""
    screen = _screen.get()
    if screen is None:
        yield
    else:
        with screen.aside():
            yield
