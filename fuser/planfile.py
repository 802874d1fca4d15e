"""Plan files: what a program fuses, kept beside the tests, so that an edit that loses a fusion is caught.

In: a plan, and a JSON file of an earlier one. Out: the file, differences in words, or FusionLost. A file knows kernels
by the names that users see, never by node ids, and holds no times and no registers, which hang on compilers and
machines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuser import accounting
from fuser.draw import facts, text, units
from fuser.errors import ArgumentError, FusionLost
from fuser.graph import Node

if TYPE_CHECKING:
    from fuser.plan import Plan

SCHEMA = 1
NAMED = 6  # losses that an error names; more are counted
Saved = Mapping[str, Any]


def record(plan: Plan) -> dict[str, Any]:
    """The contents of a plan file: kernels in launch order, each with its operators and bytes by name."""
    return {
        "schema": SCHEMA,
        "name": plan.graph.name,
        "device": plan.device.name,
        "dims": facts.dims(plan),
        "kernels": [
            {
                "label": k.label, "kind": k.group.kind, "operators": _operators(plan, k.group.members),
                "reads": dict(k.reads), "writes": dict(k.writes),
            }
            for k in plan.outline
        ],
        "totals": {"kernels": len(plan.groups), "bytes": plan.bytes_moved, "floor": plan.bytes_floor},
    }  # fmt: skip


def _operators(plan: Plan, members: tuple[int, ...]) -> list[str]:
    nodes = (plan.graph.by_id[m] for m in members)
    return list(dict.fromkeys(plan.names[n.id] for n in nodes if accounting.is_operator(n)))


def save(plan: Plan, path: str | PathLike[str]) -> None:
    """Write the plan file; ArgumentError where it cannot be written."""
    try:
        Path(path).write_text(json.dumps(record(plan), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot write {fspath(path)}: {error.strerror or error}", "bad-out") from None


def load(path: str | PathLike[str]) -> Saved:
    """Read a plan file; ArgumentError where it is none, or one of another schema."""
    name = fspath(path)
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"cannot read {name}: {error}", "bad-plan-file") from None
    if not _is_whole(found):
        hint = "write it with `fuserc explain FILE --save plan.json` or `plan.save(path)`"
        raise ArgumentError(f"{name} is no plan file of schema {SCHEMA}", "bad-plan-file", notes=[hint])
    return dict(found)


def _is_whole(found: object) -> bool:
    """Whether a JSON value has the parts that are read here."""
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return False
    kernels, totals = found.get("kernels"), found.get("totals")
    return (
        {"name", "device", "dims"} <= found.keys()
        and isinstance(kernels, list)
        and all(isinstance(k, dict) and {"label", "operators"} <= k.keys() for k in kernels)
        and isinstance(totals, dict)
        and {"kernels", "bytes", "floor"} <= totals.keys()
    )


def defaults(saved: Saved, device: str | None, dims: str | None) -> tuple[str, str]:
    """Device and sizes to plan for: those asked for (None: not asked), else the file's own."""
    own = ",".join(f"{k}={v}" for k, v in saved["dims"].items() if k.isidentifier())
    return device or saved["device"], own if dims is None else dims


def act(action: str, plan: Plan, path: str) -> list[str]:
    """What `fuserc explain` does with a plan file: "save", "check" or "diff"; the lines to print."""
    if action == "save":
        save(plan, path)
        return [f"saved {path}: {text.summary(plan)}"]
    saved = load(path)
    if action == "diff":
        return diff(plan, saved) or [f"the same as {path}"]
    check(plan, saved)
    return [f"{plan.graph.name} fuses as in {path}: {_totals(plan, saved)}"]


def check(plan: Plan, saved: Saved) -> None:
    """FusionLost where values that one kernel computed lie in two now, or where kernels or bytes are more.

    Bytes count beyond the floor, so a new argument is no loss; they are compared at equal dims only. A plan with fewer
    kernels and no more bytes is better however it is cut.
    """
    more, fewer = len(plan.groups) > saved["totals"]["kernels"], len(plan.groups) < saved["totals"]["kernels"]
    extra = _extra_bytes(plan, saved)
    losses = list(_losses(plan, saved))
    if not more and extra <= 0 and (fewer or not losses):
        return
    lines = losses[:NAMED] + ([f"and {len(losses) - NAMED} more"] if len(losses) > NAMED else [])
    if not losses:
        lines = _new_borders(plan, saved)[:NAMED]
    if extra > 0:
        lines.append(f"{units.size(extra)} more through memory than the saved plan")
    hint = "if that is meant, save the plan again: fuserc explain FILE --save plan.json"
    what = f"`{plan.graph.name}` plans {_totals(plan, saved)}"
    raise FusionLost(what, "fusion-lost", notes=[*lines, hint])


def diff(plan: Plan, saved: Saved) -> list[str]:
    """What differs, a line each: totals, then operators gone (-) and new (+), fusions lost (-) and gained (+)."""
    lines = []
    if _dims_differ(plan, saved) or plan.device.name != saved["device"]:
        lines.append(f"saved for {_target(saved['dims'], saved['device'])}")
    if len(plan.groups) != saved["totals"]["kernels"] or plan.bytes_moved != saved["totals"]["bytes"]:
        lines.append(f"{plan.graph.name}: {_totals(plan, saved)}")
    before, now = _homes(saved), _homes(record(plan))
    lines += [f"- {name}  was in {' and '.join(sorted(before[name]))}" for name in before if name not in now]
    lines += [f"+ {name}  in {' and '.join(sorted(now[name]))}" for name in now if name not in before]
    lines += [f"- {loss}" for loss in _losses(plan, saved)]
    return lines + [f"+ {gain}" for gain in _gains(plan, saved)]


def _totals(plan: Plan, saved: Saved) -> str:
    """`4 kernels, was 3; 1.2 GB, was 1.07 GB`."""
    kernels = f"{units.count(len(plan.groups), 'kernel')}, was {saved['totals']['kernels']}"
    if _dims_differ(plan, saved):
        return kernels
    return f"{kernels}; {units.size(plan.bytes_moved)}, was {units.size(saved['totals']['bytes'])}"


def _target(dims: Mapping[str, int], device: str) -> str:
    return ", ".join(filter(None, (" ".join(f"{k}={v}" for k, v in dims.items()), device)))


def _dims_differ(plan: Plan, saved: Saved) -> bool:
    return bool(facts.dims(plan) != saved["dims"])


def _extra_bytes(plan: Plan, saved: Saved) -> int:
    """Bytes beyond the floor that the saved plan did not move."""
    if _dims_differ(plan, saved):
        return 0
    return int((plan.bytes_moved - plan.bytes_floor) - (saved["totals"]["bytes"] - saved["totals"]["floor"]))


def _homes(saved: Saved) -> dict[str, set[str]]:
    """Operator name -> labels of the kernels that compute it."""
    homes: dict[str, set[str]] = {}
    for kernel in saved["kernels"]:
        for name in kernel["operators"]:
            homes.setdefault(name, set()).add(kernel["label"])
    return homes


def _pairs(plan: Plan) -> Iterator[tuple[Node, Node]]:
    """Operators and the operators that read them, plumbing between them passed over."""
    for reader in plan.graph.nodes:
        if accounting.is_operator(reader):
            for source in dict.fromkeys(accounting.materialised(i) for i in reader.inputs):
                if accounting.is_operator(source):
                    yield source, reader


def _losses(plan: Plan, saved: Saved) -> Iterator[str]:
    """Pairs that one saved kernel computed and no kernel of the plan does: `softmax.fuse:4  e -> s: why`."""
    before, now, seen = _homes(saved), _homes(record(plan)), set()
    for source, reader in _pairs(plan):
        a, b = plan.names[source.id], plan.names[reader.id]
        together = before.get(a, set()) & before.get(b, set())
        if together and not now[a] & now[b] and (a, b) not in seen:
            seen.add((a, b))
            labels = f"{' and '.join(sorted(now[a]))} | {' and '.join(sorted(now[b]))}"
            yield f"{_where(plan, reader)}{a} -> {b}: {_reason(plan, source, reader)}  ({labels}, was {min(together)})"


def _gains(plan: Plan, saved: Saved) -> Iterator[str]:
    """Pairs that lay in two saved kernels and share one now."""
    before, now = _homes(saved), _homes(record(plan))
    for a, b in dict.fromkeys((plan.names[s.id], plan.names[r.id]) for s, r in _pairs(plan)):
        if a in before and b in before and not before[a] & before[b] and now[a] & now[b]:
            labels = f"{min(now[a] & now[b])}, was {min(before[a])} | {min(before[b])}"
            yield f"{a} -> {b}: one kernel  ({labels})"


def _new_borders(plan: Plan, saved: Saved) -> list[str]:
    """Pairs that were refused beside operators that the saved plan does not know, else all that were refused."""
    known, name = _homes(saved), plan.names
    refused = [d for d in plan.decisions if d.verdict == "apart" and d.kind != "sibling"]
    fresh = [d for d in refused if name[d.producer] not in known or name[d.consumer] not in known]
    return list(dict.fromkeys(f"{name[d.producer]} -> {name[d.consumer]}: {d.text}" for d in fresh or refused))


def _reason(plan: Plan, source: Node, reader: Node) -> str:
    """The recorded reason for a pair, in words."""
    first, second = ({k for k, g in enumerate(plan.groups) if n.id in g.members} for n in (source, reader))
    names = {plan.names[source.id], plan.names[reader.id]}
    apart = [d for d in plan.decisions if d.verdict == "apart"]
    exact = [d for d in apart if {plan.names[d.producer], plan.names[d.consumer]} == names]
    between = [d for d in apart if plan.group_of.get(d.producer) in first and plan.group_of.get(d.consumer) in second]
    found = exact or between
    return found[-1].text if found else "they lie in two kernels now"


def _where(plan: Plan, node: Node) -> str:
    span = next(iter(plan.graph.spans.get(node, ())), None)
    return f"{span.filename.rpartition('/')[2]}:{span.line}  " if span else ""
