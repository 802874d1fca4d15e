"""A picture of results: for each workload, how near fuser and the best peer come to a plain copy.

In: a GPU or CPU record. Out: an SVG or PNG file. matplotlib is only needed here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import report

Record = dict[str, Any]
OURS, PEER, COMPILED = "#1b6ca8", "#c9c9c9", "#e0a458"


def draw(record: Record, path: Path) -> Path:
    """Draw and save; gives the path."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    from matplotlib import pyplot

    gpu = record["kind"] == "gpu"
    rows = [r for r in record["rows"] if "fuser" in report.timed(r) and not r["id"].startswith("S")]
    figure, axes = pyplot.subplots(figsize=(9, 0.34 * len(rows) + 1.2), layout="constrained")
    for k, row in enumerate(reversed(rows)):
        _bars(axes, k, row, gpu)
    axes.set_yticks(range(len(rows)), [r["name"] for r in reversed(rows)], fontsize=8)
    axes.axvline(100 if gpu else 1, color="black", linewidth=0.8)
    axes.set_xlabel("% of a plain copy of the same bytes" if gpu else "times as fast as NumPy")
    if not gpu:
        axes.set_xscale("log")
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.set_title(
        f"{record['card']}, {record['date'][:10]}: fuser (blue), torch.compile (orange), best peer (grey)", fontsize=9
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
    return path


def _bars(axes: Any, k: int, row: Record, gpu: bool) -> None:
    times = report.timed(row)
    unit = 100 * row["copy_us"] if gpu else times.get("numpy")
    if unit is None:
        return
    axes.barh(k + 0.18, unit / times["fuser"], 0.36, color=OURS)
    best = report.best_peer(row)
    if best is not None:
        axes.barh(k - 0.18, unit / best[1], 0.36, color=COMPILED if best[0] == "torch.compile" else PEER)
        axes.text(unit / best[1], k - 0.18, f" {best[0]}", va="center", fontsize=6)
