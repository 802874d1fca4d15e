"""What readers see of the results: the README's picture and table, and those of all rows beside the results.

In: `gpu.json` and `cpu.json` of a folder.
Out: `gpu.svg` and `gpu-short.svg` there, and the speed sections of the two READMEs. The README shows one row a family,
chosen for the question it answers and not for its answer.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import plot, report

# In the order of reading.
PICTURE = (
    *("P02", "P14a", "A03", "P03", "P03f", "P15", "P17", "P19"),  # elementwise
    *("P01", "P04b", "P05a", "P06a", "P28", "A11", "M20"),  # reductions
    *("P07", "A04-1024", "A04-32768", "A04-131072", "A04-262144", "A06-8192", "A06-131072"),  # rows
    *("P09", "A07", "P11", "P18", "P12", "M21", "P13", "A10"),  # normalisations and losses
    *("P08", "P26", "A13"),  # down columns, and several passes
    *("P21a", "P21b", "P22a", "A17", "P23a", "A18", "P24"),  # stencils, scans, transposes, gathers
)
TABLE = (
    *("P02", "A03", "P03", "P19", "P01", "P05a", "P06a", "P07", "A04-131072", "A06-8192", "P09", "P18", "M21", "P13"),
    *("P08", "P21b", "P22a", "P23a", "P24", "A13", "P20"),
)
CPU = [f"C{k:02}" for k in range(1, 11)]


def publish(results: Path, readme: Path) -> list[Path]:
    """Draw the pictures and write the sections; gives the files written."""
    records = [json.loads((results / name).read_text(encoding="utf-8")) for name in ("gpu.json", "cpu.json")]
    written = [plot.draw(records[0], results / "gpu.svg"), plot.draw(records[0], results / "gpu-short.svg", PICTURE)]
    seen = report.against_peers(records)
    report.write_section(readme, report.table(seen, [*TABLE, *CPU]))
    report.write_section(results / "README.md", report.table(seen))
    return [*written, readme, results / "README.md"]
