"""`python -m benchmarks gpu|cpu|calls|startup|counters|order|plans|planning|table|plot|publish`: measure, and draw it.

In: the command line. Out: lines while it runs, a JSON file, markdown, SVG.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuser import progress

RESULTS = Path(__file__).parent / "results"
# One or two of each family: full, rows short and long, columns, middle axes, several axes, argmax, running folds along
# rows, down columns and flat, rows that are read again, several results of one read, rows and columns.
FAMILIES = (
    "P01,A14,P27,P25,P04c,A04-128,P06a,A04-65536,A06-262144,P04a,P06b,A11,P04b,A12,P04d,P04e,P04f,P04g,P05a,P05b,A15,"
    "A16,P22b,A17,P07,P10,P09,P11,P08,P12,P13,A10,P26,A13,M11,M20,M21,M22"
)


def _saver(path: Path) -> Callable[[dict[str, Any]], None]:
    path.parent.mkdir(parents=True, exist_ok=True)

    def save(record: dict[str, Any]) -> None:
        text = json.dumps(record, indent=1, default=str) + "\n"
        part = path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)

    return save


def _say(text: str) -> None:
    with progress.aside():
        print(text, flush=True)


def _peer_names(given: str | None, known: list[str]) -> list[str]:
    """The peers asked for; a name may hold a space where the table's holds a comma and one ("by hand two kernels")."""
    if given is None:
        return known
    by_key = {name.replace(",", ""): name for name in known}
    names = given.split(",")
    unknown = [n for n in names if n not in by_key]
    if unknown:
        raise SystemExit(f"no peer is called {unknown[0]}; there are {', '.join(by_key)}")
    return [by_key[n] for n in names]


def _gpu(given: argparse.Namespace) -> None:
    from benchmarks import first_calls, gpu, peers, workloads

    rows = [workloads.resized(w, given.divide) for w in workloads.select(workloads.GPU, given.only)]
    names = _peer_names(given.peers, list(peers.PEERS))
    if "fuser" not in names:
        names.insert(0, "fuser")
    out = given.out or RESULTS / "gpu.json"
    with _jax_caches():
        if given.first_calls_only:
            first_calls.measure(rows, names, given.device, out)
            return
        found: first_calls.Seconds = {}
        if given.warm_up:
            command = ["--quiet", "gpu", "--first-calls-only", "--device", given.device, "--divide", str(given.divide)]
            command += ["--peers", ",".join(n.replace(",", "") for n in names)]
            found = first_calls.in_processes([w.id for w in rows], command, given.warm_up)
        options = gpu.Options(names, given.device, given.quick, given.seconds, given.seed, given.warm_up, found)
        gpu.run(rows, options, _saver(out), _say)


@contextmanager
def _jax_caches() -> Iterator[None]:
    """JAX takes memory as it needs it, and keeps what it compiled for the processes of this run."""
    import os
    import tempfile

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", folder)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        yield


def _cpu(given: argparse.Namespace) -> None:
    from benchmarks import cpu, workloads

    rows = [workloads.resized(w, given.divide) for w in workloads.select(workloads.CPU, given.only)]
    names = given.peers.split(",") if given.peers else None
    options = cpu.Options(names, given.quick, given.seconds, given.seed)
    cpu.run(rows, options, _saver(given.out or RESULTS / "cpu.json"), _say)


def _counters(given: argparse.Namespace) -> None:
    """Bytes by the GPU's own counters."""
    from benchmarks import counters, peers

    found = counters.run(given.only.split(","), _peer_names(given.peers, list(peers.PEERS)))
    for record in found:
        _say(f"{record['id']:6s} {record['peer']:22s} " + (record.get("error") or _traffic(record)))
    _save(given.out or RESULTS / "counters.json", "counters", found)


def _traffic(record: dict[str, Any]) -> str:
    planned = f", planned {record['planned_bytes'] / 1e9:.3f}" if record["planned_bytes"] else ""
    moved = f"read {record['read'] / 1e9:.3f} GB, written {record['written'] / 1e9:.3f}"
    return f"{len(record['kernels'])} kernels  {moved}{planned}"


def _order(given: argparse.Namespace) -> None:
    """What the fixed order of addition costs."""
    from benchmarks import free_order, workloads

    rows = workloads.select(workloads.GPU, given.only)
    if given.compile_only:
        free_order.compile_only(rows, _say)
        return
    free_order.run(rows, _say, lambda found: _save(given.out or RESULTS / "order.json", "order", found))


def _save(path: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    """Rows with the card, driver, versions and date."""
    import datetime

    from benchmarks import gpu
    from benchmarks.machine import open_machine

    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    facts = {"kind": kind, "date": now, **open_machine("cuda").describe(), "versions": gpu.versions(gpu.PACKAGES)}
    _saver(path)({**facts, "rows": rows})


def _calls(given: argparse.Namespace) -> None:
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from benchmarks import calls

    name = "calls.json" if given.device == "cuda" else "calls_cpu.json"
    calls.run(given.device, given.rounds, given.seed, _saver(given.out or RESULTS / name), _say)


def _startup(given: argparse.Namespace) -> None:
    from benchmarks import startup

    path = given.out or RESULTS / "startup.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    only = given.only.split(",") if given.only else ()
    startup.run(given.device, given.rounds, only, lambda record: _saver(path)(startup.joined(old, record)), _say)


def _plans(given: argparse.Namespace) -> None:
    from benchmarks import plans

    rows = plans.workloads(given.only.split(",") if given.only else None)
    if given.divide > 1:
        from benchmarks.workloads import resized

        rows = [resized(w, given.divide) for w in rows]
    record = plans.run(rows, given.device, given.seconds, _saver(given.out or RESULTS / "plans.json"), _say)
    print(plans.table(record))


def _planning(given: argparse.Namespace) -> None:
    from benchmarks import planning

    planning.run(given.graphs or list(planning.GRAPHS), given.repeats, _say)


def _table(given: argparse.Namespace) -> None:
    from benchmarks import report

    records = [json.loads(p.read_text(encoding="utf-8")) for p in given.results]
    if records[0].get("kind") in ("plans", "startup"):
        from benchmarks import plans, startup

        print((plans if records[0]["kind"] == "plans" else startup).table(records[0]))
        return
    only = given.only.split(",") if given.only else ()
    if given.readme is None:
        print(report.table(records, only))
    else:
        report.write_section(given.readme, report.table(report.against_peers(records), only))


def _plot(given: argparse.Namespace) -> None:
    from benchmarks import plot

    only = [o.strip() for o in given.only.split(",")] if given.only else []
    print(plot.draw(json.loads(given.results.read_text(encoding="utf-8")), given.out, only))


def _publish(given: argparse.Namespace) -> None:
    from benchmarks.publish import publish

    for path in publish(given.results, given.readme):
        print(path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0] if __doc__ else "")
    top.add_argument("--quiet", action="store_true", help="no bars on stderr")
    commands = top.add_subparsers(required=True)
    for name, run in (("gpu", _gpu), ("cpu", _cpu)):
        sub = commands.add_parser(name, help=f"measure on the {name.upper()}")
        sub.add_argument("--only", help="ids or their beginnings, as P01,A04; measured in this order")
        sub.add_argument("--peers", help="comma-separated; all that are installed where left out")
        sub.add_argument("--quick", action="store_true", help="fewer repeats, no peak memory or host times")
        sub.add_argument("--seconds", type=float, default=float("inf"), help="begin no new row after so long")
        sub.add_argument("--divide", type=int, default=1, help="run sizes divided by this")
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--out", type=Path, help="JSON file; benchmarks/results/ where left out")
        sub.set_defaults(run=run)
        if name == "gpu":
            sub.add_argument(
                "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial of the suite itself"
            )
            sub.add_argument("--warm-up", type=int, default=0, help="first calls in so many processes beforehand")
            sub.add_argument("--first-calls-only", action="store_true", help="what each of those processes does")
    counters = commands.add_parser("counters", help="bytes of a call by the GPU's counters; needs ncu")
    counters.add_argument("--only", default="P01", help="ids of workloads")
    counters.add_argument("--peers", default="fuser,by hand two kernels", help="comma-separated")
    counters.set_defaults(run=_counters)
    order = commands.add_parser("order", help="what the fixed order of reductions costs against free ones")
    order.add_argument("--only", default=FAMILIES, help="ids of workloads; one of every family where left out")
    order.add_argument("--compile-only", action="store_true", help="only fill the disk cache with their kernels")
    order.set_defaults(run=_order)
    for sub in (counters, order):
        sub.add_argument("--out", type=Path, help="JSON file; benchmarks/results/ where left out")
    calls = commands.add_parser("calls", help="measure what a call costs its host, on small arrays")
    calls.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    calls.add_argument("--rounds", type=int, default=40, help="batches of every contender")
    calls.add_argument("--seed", type=int, default=0)
    calls.add_argument("--out", type=Path, help="JSON file; benchmarks/results/ where left out")
    calls.set_defaults(run=_calls)
    startup = commands.add_parser("startup", help="measure fresh processes up to their first result")
    startup.add_argument("--device", choices=("cuda", "cpu"), default="cpu")
    startup.add_argument("--rounds", type=int, default=7, help="processes of every contender that count")
    startup.add_argument("--only", help="beginnings of names; the others keep what the file has of them")
    startup.add_argument("--out", type=Path, help="JSON file; benchmarks/results/ where left out")
    startup.set_defaults(run=_startup)
    _planner_commands(commands)
    _result_commands(commands)
    return top


def _result_commands(commands: Any) -> None:
    """Those that show what was measured."""
    table = commands.add_parser("table", help="markdown from results")
    table.add_argument("results", type=Path, nargs="+")
    table.add_argument("--only", help="beginnings of the ids of the rows to show")
    table.add_argument("--readme", type=Path, help="write it between the <!-- speed --> markers of this file")
    table.set_defaults(run=_table)
    plot = commands.add_parser("plot", help="a picture from results")
    plot.add_argument("results", type=Path)
    plot.add_argument("--only", help="beginnings of the ids of the rows to draw")
    plot.add_argument("--out", type=Path, help="SVG or PNG; beside the results where left out")
    plot.set_defaults(run=_plot)
    publish = commands.add_parser("publish", help="pictures and tables of the READMEs, from gpu.json and cpu.json")
    publish.add_argument("--results", type=Path, default=RESULTS, help="their folder")
    publish.add_argument("--readme", type=Path, default=RESULTS.parent.parent / "README.md")
    publish.set_defaults(run=_publish)


def _planner_commands(commands: Any) -> None:
    """Those about the planner."""
    plans = commands.add_parser("plans", help="the chosen plan of each program beside others, each measured")
    plans.add_argument("--only", help="ids or their beginnings, as L01,P09")
    plans.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a trial of the suite itself")
    plans.add_argument("--seconds", type=float, default=float("inf"), help="begin no new program after so long")
    plans.add_argument("--divide", type=int, default=1, help="run sizes divided by this")
    plans.add_argument("--out", type=Path, help="JSON file; benchmarks/results/plans.json where left out")
    plans.set_defaults(run=_plans)
    planning = commands.add_parser("planning", help="how long planning takes as graphs grow")
    planning.add_argument("graphs", nargs="*", help="chain, random, mixed, wide; all where left out")
    planning.add_argument("--repeats", type=int, default=1)
    planning.set_defaults(run=_planning)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    given = parser().parse_args(arguments)
    if getattr(given, "run", None) is _plot and given.out is None:
        given.out = given.results.with_suffix(".svg")
    try:
        with progress.shown(given.quiet, still=True):
            given.run(given)
    except KeyboardInterrupt:  # rows are saved as they come
        sys.exit("interrupted")


if __name__ == "__main__":
    main()
