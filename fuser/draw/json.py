"""Plans as JSON-plain dictionaries (schema 1): everything the text shows, and every decision."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fuser.draw import because, facts, kernels, text
from fuser.settings import settings
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
        "dims": facts.dims(plan),
        "totals": {
            "kernels": len(plan.groups), "kernels_unfused": plan.kernels_unfused, "bytes": plan.bytes_moved,
            "bytes_unfused": plan.bytes_unfused, "bytes_floor": plan.bytes_floor,
        },
        "arguments": [{"name": a.name, "type": f"{a.dtype}{text_of(a.shape)}"} for a in graph.arguments],
        "operators": [
            {
                "id": o.node.id, "name": o.name, "formula": o.formula, "type": o.type, "kernels": list(o.kernels),
                "stage": o.stage, "line": o.line, "inputs": [i.id for i in o.node.inputs],
            }
            for o in facts.operators(plan)
        ],
        "kernels": [_kernel(plan, k) for k in plan.kernels],
        "fused": [
            {"kernel": plan.outline[f.group].label, "values": f.names, "reason": f.text, "saves_bytes": f.saves,
             "saves_launches": f.launches}
            for f in because.flows(plan)
        ],
        "apart": [
            {"kernels": list(a.kernels), "producer": a.producer, "consumers": list(a.consumers), "siblings": a.siblings,
             "reason": a.decision.reason, "text": text.why(a), "bytes": a.bytes}
            for a in facts.apart(plan)
        ],
        "temporaries_peak": facts.temporaries(plan)[0],
        "cuda_graph": text.graph_line(plan) if plan.cuda_graph else None,
        "decisions": [
            {
                "kind": d.kind, "producer": d.producer, "consumer": d.consumer, "verdict": d.verdict,
                "reason": d.reason, "text": d.text, "numbers": dict(d.numbers),
            }
            for d in plan.decisions
        ],
    }  # fmt: skip


def _kernel(plan: Plan, k: PlannedKernel) -> dict[str, Any]:
    return {
        "label": k.label, "name": k.group.name, "kind": k.group.kind, "members": list(k.group.members),
        "lines": list(k.lines), "reads": dict(k.reads), "writes": dict(k.writes), "predicted": _predicted(plan, k),
        "schedule": None if k.schedule is None else asdict(k.schedule),
        "registers": k.registers, "spills": k.spills, "valid_for": kernels.valid_for(plan, k),
    }  # fmt: skip


def _predicted(plan: Plan, k: PlannedKernel) -> dict[str, float]:
    """The cost model's numbers; under `stable` without those that hang on this machine."""
    if settings().stable and plan.device.kind == "cpu":
        return {"bytes": k.predicted["bytes"]}
    return dict(k.predicted)
