"""Plans as JSON-plain dictionaries (schema 1): everything the text shows, and every decision."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fuser.draw import facts
from fuser.shapes import text_of

if TYPE_CHECKING:
    from fuser.plan import Plan, PlannedKernel

SCHEMA = 1


def to_json(plan: Plan) -> dict[str, Any]:
    """Node ids are the graph's own; names are the user's."""
    graph = plan.graph
    return {
        "schema": SCHEMA,
        "name": graph.name,
        "device": plan.device.name,
        "dims": {k: v for k, v in plan.sizes.items() if k in graph.symbols and not k.startswith(("=", "#"))},
        "totals": {
            "kernels": len(plan.groups), "kernels_unfused": plan.kernels_unfused, "bytes": plan.bytes_moved,
            "bytes_unfused": plan.bytes_unfused, "bytes_floor": plan.bytes_floor,
        },
        "arguments": [{"name": a.name, "type": f"{a.dtype}{text_of(a.shape)}"} for a in graph.arguments],
        "operators": [
            {
                "id": o.node.id, "name": o.name, "formula": o.formula, "type": o.type, "kernel": o.kernel,
                "stage": o.stage, "line": o.line, "inputs": [i.id for i in o.node.inputs],
            }
            for o in facts.operators(plan)
        ],
        "kernels": [_kernel(k) for k in plan.kernels],
        "decisions": [
            {
                "kind": d.kind, "producer": d.producer, "consumer": d.consumer, "verdict": d.verdict, "reason": d.reason,
                "text": d.text, "numbers": dict(d.numbers),
            }
            for d in plan.decisions
        ],
    }  # fmt: skip


def _kernel(k: PlannedKernel) -> dict[str, Any]:
    return {
        "label": k.label, "name": k.name, "kind": k.group.kind, "members": list(k.group.members), "lines": list(k.lines),
        "reads": dict(k.reads), "writes": dict(k.writes), "predicted": dict(k.predicted),
        "schedule": None if k.schedule is None else asdict(k.schedule),
        "registers": k.registers, "spills": k.spills,
    }  # fmt: skip
