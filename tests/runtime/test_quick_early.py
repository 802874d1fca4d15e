"""First calls on a GPU take the long road: the short one needs native code, which takes longer to make than they do."""

from types import SimpleNamespace
from typing import Any

import pytest

from fuser import quick
from fuser.quick import SOON, Roads, Ticket
from fuser.runtime.arrays import CPU, Place


def learned(place: Place, graphs: bool, monkeypatch: pytest.MonkeyPatch, native: bool = False) -> int:
    """After how many calls a launch is kept."""
    launch = object()
    monkeypatch.setattr(quick, "_places", lambda *given: (SimpleNamespace(), False))
    monkeypatch.setattr(quick, "launch_for", lambda *given: launch)
    monkeypatch.setattr(quick, "_has_native_code", lambda: native)
    roads = Roads(lambda: None, lambda: None, graphs)
    graph = SimpleNamespace(output_tree=None, guards=())
    traced: Any = SimpleNamespace(graph=graph)
    made: Any = SimpleNamespace(place=place)
    anything: Any = None
    for count in range(1, 2 * SOON):
        ticket = Ticket((), (), "kind", False, roads._watch)
        roads.learn(ticket, (), anything, anything, traced, made)
        if roads._table.get("kind") is launch:
            return count
    return 0


def test_native_code_waits_for_a_program_that_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = Place("cuda", 0)
    assert learned(cuda, False, monkeypatch) == SOON
    assert learned(cuda, False, monkeypatch, native=True) == 1
    assert learned(cuda, True, monkeypatch) == 1  # asked for graphs, which are made of it
    assert learned(CPU, False, monkeypatch) == 1
