"""Results as markdown, and the README's speed section.

In: records written by `gpu` and `cpu`. Out: text; `write_section` puts it between `<!-- speed -->` and
`<!-- /speed -->`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import BY_HAND
from benchmarks.workloads import geometric_mean

Record = dict[str, Any]
MEMORY_BOUND = 0.05  # of a copy's speed
MARGIN = 0.03  # what is nearer counts as equal
BEGIN, END = "<!-- speed -->", "<!-- /speed -->"


def merged(records: Sequence[Record]) -> list[Record]:
    """One record a kind: rows of later files join those of earlier ones, and replace the runs of the same peers."""
    kinds: dict[str, Record] = {}
    for record in records:
        into = kinds.setdefault(record["kind"], {**record, "rows": []})
        rows = {row["id"]: row for row in into["rows"]}
        for row in record["rows"]:
            old = rows.get(row["id"], {"runs": {}})
            rows[row["id"]] = {**old, **row, "runs": {**old["runs"], **row["runs"]}}
        into["rows"] = list(rows.values())
        into["read_gbs"] = max(into.get("read_gbs", 0), record.get("read_gbs", 0))
    return list(kinds.values())


def table(records: Sequence[Record], only: Sequence[str] = ()) -> str:
    """Markdown of all records; with `only`, of the rows whose ids start so (means are over all rows all the same)."""
    tables = {"gpu": gpu_table, "cpu": cpu_table}
    return "\n\n".join(tables[r["kind"]](r, tuple(only)) for r in merged(records))


def shown(record: Record, only: tuple[str, ...]) -> list[Record]:
    """The rows of the ids in `only` (or that begin so, where it is no id), in its order; all where it is empty."""
    if not only:
        return list(record["rows"])
    ids = [row["id"] for row in record["rows"]]
    wanted = dict.fromkeys(i for o in only for i in ([o] if o in ids else [i for i in ids if i.startswith(o)]))
    return [record["rows"][ids.index(i)] for i in wanted]


def timed(row: Record) -> dict[str, float]:
    """Microseconds by peer, of those that ran and were right."""
    return {name: run["us"] for name, run in row["runs"].items() if "us" in run and "error" not in run}


def best_peer(row: Record) -> tuple[str, float] | None:
    """The fastest of what a user would pick instead."""
    others = {n: t for n, t in timed(row).items() if not n.startswith("fuser") and n not in BY_HAND}
    return min(others.items(), key=lambda item: item[1]) if others else None


def speedups(rows: Sequence[Record], peer: str) -> list[float]:
    """Time of a peer over fuser's, of the rows both ran."""
    pairs = [(timed(r).get("fuser"), timed(r).get(peer)) for r in rows]
    return [theirs / ours for ours, theirs in pairs if ours and theirs]


def read_ceiling(record: Record) -> float:
    """GB/s of the best pure read in the run, by hand or by any peer, over at least 256 MB."""
    rates = [record.get("read_gbs", 0.0)]
    for row in record["rows"]:
        if row.get("minimum", 0) > 1 << 28 and row.get("written", row["minimum"]) < row["minimum"] / 100:
            rates += [run["gbs"] for run in row["runs"].values() if "gbs" in run and "error" not in run]
    return float(max(rates))


def against_peers(records: Sequence[Record]) -> list[Record]:
    """The records with only the rows that a peer ran too (what the README shows)."""
    return [{**r, "rows": [row for row in r["rows"] if best_peer(row)]} for r in records]


def gpu_table(record: Record, only: tuple[str, ...] = ()) -> str:
    """A row a workload: share of a copy of the same bytes, and the best peer."""
    ceiling = read_ceiling(record)
    lines = [
        f"{record['card']}, driver {record['driver']}, CUDA {record.get('cuda', '?')}, {record['date'][:10]}; "
        f"{_versions(record)}. Times run from the begin of a call's first kernel to the end of its last, by the "
        "device's clock, after a read that leaves the L2 full of clean lines: medians of rounds in which all take "
        "turns. % is of a plain copy of as many bytes in the same rounds (programs that only read can pass 100%: the "
        f"best read was {ceiling:.0f} GB/s).",
        "",
        "| workload | MB | fuser | kernels | GB/s | best peer | fuser is | torch.compile |",
        "|---|--:|--:|--:|--:|---|--:|--:|",
    ]
    lines += [_gpu_line(row) for row in shown(record, only)]
    means = []
    for name in _peers(record):
        if found := speedups(record["rows"], name):
            means.append(f"{geometric_mean(found):.2f}x {name} ({len(found)} rows)")
    if means:
        lines += ["", f"Geometric means: {', '.join(means)}.", "", behind(record["rows"])]
    return "\n".join(lines)


def _peers(record: Record) -> list[str]:
    return list(dict.fromkeys(n for row in record["rows"] for n in row["runs"] if not n.startswith("fuser")))


def _versions(record: Record) -> str:
    return ", ".join(f"{k} {v}" for k, v in record["versions"].items())


def _gpu_line(row: Record) -> str:
    ours, run = timed(row).get("fuser"), row["runs"].get("fuser", {})
    if ours is None:
        return f"| {row['name']} | | failed: {str(row.get('error', run.get('error', '')))[:80]} | | | | | |"
    best = best_peer(row)
    compiled = timed(row).get("torch.compile")
    kernels = str(run.get("launches", run.get("planned_kernels", "")))
    peer = f"{best[0]} {_speed(row, best[1])}" if best else ""
    ratio = f"{best[1] / ours:.2f}x" if best else ""
    other = _speed(row, compiled) if compiled else ""
    moved = f"{row['minimum'] / 1e6:.4g}"
    return (
        f"| {row['name']} | {moved} | {_speed(row, ours)} | {kernels} | {run['gbs']:.0f} | {peer} | {ratio} | {other} |"
    )


def counts_bytes(row: Record) -> bool:
    """Whether a share of a copy says anything of a row: its time is memory's, not that of arithmetic."""
    return bool(row["copy_us"] > MEMORY_BOUND * min(timed(row).values()))


def _speed(row: Record, us: float) -> str:
    return f"{100 * row['copy_us'] / us:.0f}%" if counts_bytes(row) else f"{us / 1e3:.2f} ms"


def behind(rows: Sequence[Record]) -> str:
    """The rows in which a peer is faster by more than `MARGIN`, in one sentence."""
    found: dict[str, list[str]] = {}
    for row in rows:
        ours, best = timed(row).get("fuser"), best_peer(row)
        if ours and best and ours > best[1] * (1 + MARGIN):
            found.setdefault(best[0], []).append(f"{row['name']} ({100 * (ours / best[1] - 1):.0f}%)")
    if not found:
        return f"No peer is faster by more than {100 * MARGIN:.0f}% in any row."
    worst = "; ".join(f"{peer} in {', '.join(names)}" for peer, names in found.items())
    return f"Faster than fuser by more than {100 * MARGIN:.0f}%: {worst}."


def cpu_table(record: Record, only: tuple[str, ...] = ()) -> str:
    """A row a workload: milliseconds by peer, and the ratio to the best."""
    peers = _peers(record)
    load = f" (load average {record['load'][0]:.1f} before the run)" if record.get("load") else ""
    lines = [
        f"{record['card']}, {record['cores']} cores{load}, {record['date'][:10]}; {_versions(record)}. "
        "Milliseconds, medians of interleaved rounds; ratios are medians of paired rounds, results fresh unless "
        "given by `out=`.",
        "",
        f"| workload | fuser | fuser out= | {' | '.join(peers)} | best peer |",
        f"|---|--:|--:|{'--:|' * len(peers)}--:|",
    ]
    for row in shown(record, only):
        times = timed(row)
        cells = [f"{times[n] / 1e3:.3g}" if n in times else "" for n in ("fuser", "fuser out=", *peers)]
        best = best_peer(row)
        ratio = f"{row['runs'][best[0]].get('ratio', 0):.2f}x {best[0]}" if best else ""
        lines.append(f"| {row['name']} | {' | '.join(cells)} | {ratio} |")
    means = []
    for peer in peers:
        found = [r["runs"][peer]["ratio"] for r in record["rows"] if r["runs"].get(peer, {}).get("ratio")]
        if found:
            means.append(f"{geometric_mean(found):.2f}x {peer} ({len(found)} rows)")
    return "\n".join([*lines, "", f"Geometric means: {', '.join(means)}."])


def write_section(readme: Path, text: str) -> None:
    """Replace what stands between the markers; SystemExit where the file has none."""
    content = readme.read_text(encoding="utf-8")
    head, begin, rest = content.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{readme} has no {BEGIN} ... {END}")
    readme.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}", encoding="utf-8")
