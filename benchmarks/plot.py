"""A picture of results: for each workload, how near fuser and its peers come to a plain copy.

In: a GPU or CPU record, and the rows wanted. Out: an SVG or PNG file. One line a workload, one dot a contender, so
that a row is read along one line and a column of blue dots at 100% is the whole message. Rows whose time is arithmetic
say nothing on this axis and are left out. matplotlib is only needed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import report

Record = dict[str, Any]
SHOWN = {  # colour and order of drawing; every other peer is a grey dot
    "fuser": "#1b6ca8",
    "torch.compile": "#e0803a",
    "jax": "#4d9a51",
    "quack": "#8a5fb0",
    "numba": "#8a5fb0",
    "numpy": "#c03d3e",
}
OTHER = "#b9b9b9"
LEFT_OUT = ("torch", "cupy", "cupy.fuse")  # one kernel an operator: always far to the left


def draw(record: Record, path: Path, only: Sequence[str] = ()) -> Path:
    """Draw and save; gives the path. only: ids of rows, or their beginnings."""
    import matplotlib

    matplotlib.use("svg" if path.suffix == ".svg" else "agg")
    matplotlib.rcParams["svg.hashsalt"] = "fuser"  # the same file from the same record
    from matplotlib import pyplot

    gpu = record["kind"] == "gpu"
    rows = [r for r in report.shown(record, tuple(only)) if _drawn(r, gpu)]
    figure, axes = pyplot.subplots(figsize=(9, 0.2 * len(rows) + 1.3), layout="constrained")
    for k, row in enumerate(reversed(rows)):
        _line(axes, k, row, gpu)
    axes.set_yticks(range(len(rows)), [r["name"] for r in reversed(rows)], fontsize=8)
    _frame(axes, record, gpu, len(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    return path


def _drawn(row: Record, gpu: bool) -> bool:
    times = report.timed(row)
    if "fuser" not in times or row["id"].startswith("S"):
        return False
    return not gpu or report.counts_bytes(row)


def _line(axes: Any, k: int, row: Record, gpu: bool) -> None:
    """One workload: a dot for each contender on a thin line; fuser's last, so that it is on top."""
    times = report.timed(row)
    unit = 100 * row["copy_us"] if gpu else times.get("numpy")
    if unit is None:
        return
    peers = [n for n in times if not n.startswith("fuser") and n not in LEFT_OUT and n not in report.BY_HAND]
    for name in sorted(peers, key=lambda n: n in SHOWN):
        axes.plot(unit / times[name], k, "o", markersize=4.5, color=SHOWN.get(name, OTHER), zorder=2)
    axes.plot(unit / times["fuser"], k, "o", markersize=6.5, color=SHOWN["fuser"], zorder=3)
    axes.axhline(k, color="#ececec", linewidth=0.8, zorder=0)


def _frame(axes: Any, record: Record, gpu: bool, count: int) -> None:
    """Axes, a legend above, and the line of a copy (of NumPy, for a CPU)."""
    from matplotlib.lines import Line2D

    axes.axvline(100 if gpu else 1, color="black", linewidth=0.8, zorder=1)
    axes.set_xlabel("% of the speed of a plain copy of the same bytes" if gpu else "times as fast as NumPy", fontsize=9)
    if gpu:
        axes.set_xlim(0, 112)
    else:
        axes.set_xscale("log")
    axes.set_ylim(-0.7, count - 0.3)
    used = {n for row in record["rows"] for n in report.timed(row)}
    names = [n for n in SHOWN if n in used]
    dots = [Line2D([], [], marker="o", linestyle="", color=SHOWN[n], label=n) for n in names]
    dots.append(Line2D([], [], marker="o", linestyle="", color=OTHER, label="other fused kernels"))
    axes.legend(
        handles=dots, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(dots), fontsize=8, frameon=False,
        title=f"{record['card']}, {record['date'][:10]}", title_fontsize=9,
    )  # fmt: skip
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
