"""Which integer variables are pure address arithmetic, so that C may take their overflow for impossible.

In: a kernel's statements. Out: names of variables that are sums, differences and products of thread and block
numbers, loop counters and scalar parameters, and that an index is made of. The kernel language lets no index overflow,
and signed C arithmetic lets the compiler fold constant parts into addresses (one register instead of one for each
element of an unrolled loop). Everything else wraps, as users' integers must: a gathered index is not touched, because
it passes through a clamp.
"""

from __future__ import annotations

from fuser.codegen.loops import (
    Alloc,
    AsyncCopy,
    For,
    Let,
    Lit,
    Load,
    LoadVec,
    Operand,
    Prefetch,
    Send,
    Special,
    Statement,
    Store,
    StoreVec,
    Ticket,
    walk,
)
from fuser.codegen.uses import declared

SUMS = frozenset({"add", "subtract", "multiply"})


def addresses(body: tuple[Statement, ...]) -> frozenset[str]:
    """Names of the variables that address arithmetic alone defines and an access uses."""
    lets = {s.var.name: s for s in walk(body) if isinstance(s, Let)}
    counters = {s.var.name: s for s in walk(body) if isinstance(s, For)}
    work: list[Operand] = []
    for s in walk(body):
        if isinstance(s, (Load, Store, LoadVec, StoreVec, AsyncCopy, Prefetch)):
            work.append(s.index)
        if isinstance(s, AsyncCopy):
            work.append(s.place)
    found: set[str] = set()
    while work:
        x = work.pop()
        if isinstance(x, Lit):
            continue
        if loop := counters.pop(x.name, None):
            work += [loop.start, loop.stop, loop.step]
        made = lets.get(x.name)
        if made is None or made.op not in SUMS or made.var.name in found:
            continue
        found.add(made.var.name)
        work.extend(made.args)
    derived = thread_derived(body)
    return frozenset(found & derived)


def thread_derived(body: tuple[Statement, ...]) -> set[str]:
    """Variables computed from thread and ticket numbers, loop counters, parameters and literals, never from memory."""
    loaded_or_mutable: set[str] = set()
    derived: set[str] = set()
    numbers = _of_tickets(body)
    for s in walk(body):
        if isinstance(s, (Special, For, Ticket)) or (isinstance(s, Load) and s.buffer in numbers):
            derived.add(s.var.name)
        elif isinstance(s, Let):
            if all(isinstance(a, Lit) or a.name not in loaded_or_mutable for a in s.args):
                derived.add(s.var.name)
            else:
                loaded_or_mutable.add(s.var.name)
        else:
            loaded_or_mutable.update(v.name for v in declared(s))
    return derived


def _of_tickets(body: tuple[Statement, ...]) -> set[str]:
    """Arrays that only ever hold numbers of tickets, which are block numbers in another order."""
    tickets = {s.var.name for s in walk(body) if isinstance(s, Ticket)}
    stored = [s for s in walk(body) if isinstance(s, (Store, Send))]
    others = {s.buffer for s in stored if isinstance(s.value, Lit) or s.value.name not in tickets}
    allocated = {s.name for s in walk(body) if isinstance(s, Alloc)}
    return (allocated & {s.buffer for s in stored}) - others
