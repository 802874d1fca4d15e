"""The benchmark suite: its rows are the published ones, its programs right, its reports what was measured.

Nothing is timed here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from benchmarks import (
    accuracy,
    calls,
    counters,
    cpu,
    first_calls,
    free_order,
    gpu,
    inputs,
    libraries,
    plans,
    report,
    timeline,
    workloads,
)
from benchmarks.__main__ import main, parser
from benchmarks.workloads import CPU, GPU, WORKLOADS, Workload
from fuser import order

SMALL = 2048


def small(w: Workload) -> Workload:
    """A workload at a size for tests: its axis that `resized` divides, divided; the reduced and the other axes cut."""
    cut = workloads.resized(w, SMALL)
    specs, longest = [], 48
    for s in cut.specs:
        specs.append(_cut(s, longest) if isinstance(s, str) else s)
    return replace(cut, specs=tuple(specs), ranges={k: _in(b, longest) for k, b in cut.ranges.items()})


def _cut(spec: str, longest: int) -> str:
    name, dims = spec.rstrip("]").split("[")
    return f"{name}[{', '.join(str(min(int(d), longest)) for d in dims.split(','))}]"


def _in(bounds: tuple[float, float], longest: int) -> tuple[float, float]:
    return bounds if bounds[1] <= longest + 2 else (bounds[0], 8)


def one_each(rows: tuple[Workload, ...]) -> list[Workload]:
    """The first workload of each program and options."""
    return list({(w.program, w.options): w for w in rows}.values())


def test_ids_are_unique_and_start_with_no_other() -> None:
    for rows in (GPU, CPU):
        assert len({w.id for w in rows}) == len(rows)


@pytest.mark.parametrize("w", WORKLOADS, ids=lambda w: w.id)
def test_published_bytes_are_inputs_once_and_results_once(w: Workload) -> None:
    plan = fuser.compile(w.fn).plan(*w.specs, device="sm_90")
    whole_table = 131072 * 4096 * 4
    gathered = 16384 * 4096 * 4
    correction = whole_table - gathered if w.gathers else 0
    assert plan.bytes_floor - correction == w.minimum


@pytest.mark.parametrize("w", one_each((*GPU, *CPU)), ids=lambda w: w.id)
def test_fuser_gives_what_numpy_gives_in_float64(w: Workload) -> None:
    """Every program, bound to fuser and to NumPy, on the same small inputs."""
    if w.random:
        pytest.skip("draws numbers; `fuser.reference` covers it")
    tiny = small(w)
    row = cpu.measure(tiny, ["fuser", "numpy"], cpu.Options(["fuser", "numpy"], quick=True))
    for name in ("fuser", "numpy"):
        run = row["runs"][name]
        if name == "numpy" and "bf16" in str(w.specs):
            continue  # NumPy rounds after every operator
        assert "error" not in run, (name, run)
        assert run["relative_error"] < 1e-2


def test_a_wrong_result_is_recorded_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(w: Workload, args: list[Any]) -> Any:
        return lambda: np.float32(np.abs(args[0]).sum() * 1.1)

    monkeypatch.setitem(cpu.PEERS, "numpy", ("numpy", off_by_one))
    row = cpu.measure(small(WORKLOADS[0]), ["fuser", "numpy"], cpu.Options(None, quick=True))
    assert "WrongResult" in row["runs"]["numpy"]["error"]
    assert "us" not in row["runs"]["numpy"]
    assert "us" in row["runs"]["fuser"]


def test_inputs_are_fresh_for_each_seed_and_within_bounds() -> None:
    market = small(next(w for w in GPU if w.program == "black_scholes"))
    first, again, other = (inputs.on_host(market, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    assert 0.25 <= first[2].min() <= first[2].max() < 2.0


def test_resized_keeps_arguments_fitting_each_other() -> None:
    by_id = {w.id: w for w in GPU}
    assert workloads.scaled(by_id["P02"], 16)[0] == "f32[2048, 8192]"
    assert workloads.scaled(by_id["P02"], 16)[3] == "f32[2048, 1]"
    assert workloads.scaled(by_id["P23b"], 16)[1] == "f32[640, 768, 32]"
    assert workloads.scaled(by_id["P05a"], 16) == ("f32[4096, 4096]",)  # both axes share the division
    table = workloads.resized(by_id["P24"], 16)
    assert table.specs == ("f32[8192, 4096]", "i64[1024]", "f32[1024, 4096]")
    assert table.ranges[1] == (0, 8192)


def test_selection_keeps_the_order_asked_for() -> None:
    assert [w.id for w in workloads.select(GPU, "P07,P01")] == ["P07", "P01"]
    assert [w.id for w in workloads.select(GPU, "P04")] == ["P04a", "P04b", "P04c", "P04d", "P04e", "P04f", "P04g"]
    with pytest.raises(SystemExit, match="no workload is called Z9"):
        workloads.select(GPU, "Z9")


def test_a_library_that_cannot_store_returns_what_it_would_have_stored() -> None:
    tiny = small(next(w for w in GPU if w.program == "adamw"))
    args = inputs.on_host(tiny, 0)
    library = libraries.numpy()
    library.assign, library.written = (lambda target, value: value), (lambda results, *targets: (*results, *targets))
    returned = tiny.bound(libraries.programs(library))(*args)
    tiny.bound(libraries.programs(libraries.numpy()))(*args)
    assert [np.array_equal(r, args[k]) for r, k in zip(returned, tiny.writes, strict=True)] == [True] * 3


GPU_RECORD = {
    "kind": "gpu", "card": "Card", "driver": "1", "cuda": "13", "date": "2026-01-02T03:04",
    "versions": {"fuser": "0"}, "read_gbs": 4000.0,
    "rows": [
        {"id": "P01", "name": "abs_sum", "minimum": 1 << 30, "written": 4, "copy_us": 250.0, "runs": {
            "fuser": {"us": 240.0, "gbs": 4473.9, "launches": 1, "planned_kernels": 1},
            "jax": {"us": 300.0, "gbs": 3579.1}, "torch.compile": {"us": 480.0, "gbs": 2236.9},
            "by hand": {"us": 100.0, "gbs": 9000.0, "error": "WrongResult"}, "cupy": {"skipped": "why"}}},
        {"id": "P02", "name": "broken", "minimum": 1, "copy_us": 1.0, "runs": {"fuser": {"error": "ValueError: no"}}},
    ],
}  # fmt: skip


def test_the_table_shows_shares_peers_and_failures() -> None:
    text = report.table([GPU_RECORD])
    assert "| abs_sum | 1074 | 104% | 1 | 4474 | jax 83% | 1.25x | 52% |" in text
    assert "| broken | | failed: ValueError: no" in text
    assert "best read was 4474 GB/s" in text
    assert "2.00x torch.compile (1 rows)" in text


def test_the_table_says_who_is_faster_and_times_what_no_copy_bounds() -> None:
    row = GPU_RECORD["rows"][0]  # type: ignore[index]
    runs = {"fuser": {"us": 240.0, "gbs": 1.0, "launches": 1}, "jax": {"us": 200.0, "gbs": 1.0}}
    slower, bound = {**row, "runs": runs}, {**row, "id": "P20", "name": "nbody", "copy_us": 1.0, "runs": runs}  # type: ignore[dict-item]
    assert report.behind([slower]) == "Faster than fuser by more than 3%: jax in abs_sum (20%)."
    assert report.behind([row]) == "No peer is faster by more than 3% in any row."
    assert "| nbody | 1074 | 0.24 ms | 1 | 1 | jax 0.20 ms | 0.83x |" in report.table([{**GPU_RECORD, "rows": [bound]}])


def test_errors_name_files_but_no_folders() -> None:
    short = gpu._short(RuntimeError("no /some/where/lib/_ir.so here, and 3/4 of a/b stay\nmore"))
    assert short.startswith("RuntimeError: no _ir.so here, and 3/4 of a/b stay")


def test_rows_are_shown_in_the_order_asked_for() -> None:
    record = {"rows": [{"id": i} for i in ("P01", "P03", "P03f", "A04-1", "A04-2")]}
    assert [r["id"] for r in report.shown(record, ("A04", "P03", "P01"))] == ["A04-1", "A04-2", "P03", "P01"]
    assert len(report.shown(record, ())) == 5


def test_what_readers_see_is_written_from_the_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from benchmarks.publish import publish

    cpu = tmp_path / "cpu.json"
    main(["cpu", "--only", "C10", "--divide", "8", "--peers", "fuser,numpy", "--quick", "--out", str(cpu)])
    record = {**GPU_RECORD, "rows": GPU_RECORD["rows"][:1]}  # type: ignore[index]
    (tmp_path / "gpu.json").write_text(json.dumps(record))
    for readme in (tmp_path / "R.md", tmp_path / "README.md"):
        readme.write_text("<!-- speed -->\n<!-- /speed -->\n")
    written = publish(tmp_path, tmp_path / "R.md")
    assert all(path.stat().st_size > 0 for path in written)
    assert "abs_sum" in (tmp_path / "R.md").read_text()
    assert "abs_sum" in (tmp_path / "gpu-short.svg").read_text()
    before = (tmp_path / "gpu-short.svg").read_bytes()
    publish(tmp_path, tmp_path / "R.md")
    assert (tmp_path / "gpu-short.svg").read_bytes() == before  # the same file from the same record


def test_later_results_join_earlier_ones() -> None:
    later = {**GPU_RECORD, "rows": [{**GPU_RECORD["rows"][0], "runs": {"jax": {"us": 200.0, "gbs": 1.0}}}]}  # type: ignore[index,dict-item]
    (both,) = report.merged([GPU_RECORD, later])
    assert [row["id"] for row in both["rows"]] == ["P01", "P02"]
    assert both["rows"][0]["runs"]["jax"]["us"] == 200.0
    assert both["rows"][0]["runs"]["fuser"]["us"] == 240.0


def test_the_readme_section_is_replaced_between_its_markers(tmp_path: Path) -> None:
    readme, results = tmp_path / "README.md", tmp_path / "r.json"
    results.write_text(json.dumps(GPU_RECORD))
    readme.write_text("before\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n")
    main(["table", str(results), "--readme", str(readme)])
    text = readme.read_text()
    assert text.startswith("before\n<!-- speed -->\n\nCard, driver 1")
    assert text.endswith("<!-- /speed -->\nafter\n")
    assert "old" not in text
    readme.write_text("no markers")
    with pytest.raises(SystemExit, match="has no <!-- speed -->"):
        main(["table", str(results), "--readme", str(readme)])


def test_the_cpu_suite_writes_a_record(tmp_path: Path) -> None:
    out = tmp_path / "cpu.json"
    main(["cpu", "--only", "C10", "--divide", "8", "--peers", "fuser,numpy", "--quick", "--out", str(out)])
    record = json.loads(out.read_text())
    assert [row["id"] for row in record["rows"]] == ["C10"]
    assert record["rows"][0]["runs"]["numpy"]["ratio"] > 0
    assert "geometric means" in report.table([record]).lower()


def test_the_command_line_names_its_parts() -> None:
    given = parser().parse_args(["gpu", "--only", "P01", "--quick", "--seconds", "60"])
    assert (given.only, given.quick, given.seconds) == ("P01", True, 60.0)


def operations(*names: str) -> list[timeline.Operation]:
    return [timeline.Operation(name, 10.0 * k, 10.0 * k + 4) for k, name in enumerate(names)]


def test_a_turn_is_what_the_device_did_after_its_last_marker() -> None:
    """Two markers on the default stream, around the flush; one before JAX's turns."""
    seen = operations("spin", "flush", "spin", "a", "b", "spin", "jax flush", "c", "spin", "flush", "spin", "a", "b")
    parts = timeline.split(seen, [False, True, False])
    assert [[o.name for o in part] for part in parts] == [["a", "b"], ["jax flush", "c"], ["a", "b"]]
    with pytest.raises(RuntimeError, match="saw 5 markers, not 3"):
        timeline.split(seen, [False, True])


def test_a_span_runs_from_the_first_begin_to_the_last_end() -> None:
    short, long = operations("a", "b"), [timeline.Operation("a", 0, 30), timeline.Operation("b", 2, 7)]
    span = timeline.median([short, short, long])
    assert span == timeline.Span(14, 8, ("a", "b"))
    assert timeline.median([long]) == timeline.Span(30, 35, ("a", "b"))
    assert timeline.median([short, []]) is None


def test_the_float64_result_in_slabs_is_the_whole_one() -> None:
    pytest.importorskip("torch")
    w = replace(small(next(w for w in GPU if w.program == "softmax")), specs=("f32[37, 48]",))
    args = inputs.on_device(w, "cpu", 0)
    (whole,), (parts,) = accuracy.truth(w, args), accuracy.truth(replace(w, slabs=8), args)
    assert np.array_equal(whole.float().numpy(), parts.numpy())


def test_what_a_call_costs_beyond_its_kernel() -> None:
    us = {"fuser numpy": 2.0, "fuser numpy, 2 x the rows": 3.5, "numpy": 9.0}
    assert calls._beyond_kernel({k: {"median": 99.0, "least": v} for k, v in us.items()}) == {"fuser numpy": 0.5}


def test_first_calls_made_beforehand_stand_for_those_from_caches() -> None:
    row = {"id": "P01", "runs": {"fuser": {"first_call_s": 0.1, "us": 1.0}, "jax": {"first_call_s": 0.2}}}
    first_calls.put_into(row, {"P01": {"fuser": 1.5}})
    assert row["runs"] == {"fuser": {"first_call_s": 1.5, "us": 1.0}, "jax": {}}


def test_processes_share_the_rows_and_start_apart() -> None:
    ids = [f"R{k}" for k in range(40)]
    shares = [first_calls._share(ids, k, 8) for k in range(8)]
    assert sorted(i for share in shares for i in share) == sorted(ids)
    assert [s[0] for s in shares][:4] == ["R0", "R1", "R10", "R11"]


def test_rows_of_a_process_that_fails_are_left_out() -> None:
    assert first_calls.in_processes(["P01", "P02", "P03"], ["no-such-command"], 2) == {}


NCU = """==PROF== Connected to process 412
planned 1073741828
==PROF== Disconnected from process 412
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","412","absolute","dram__bytes_read.sum","Gbyte","1.07"
"0","412","absolute","dram__bytes_write.sum","Mbyte","1,073.7"
"1","412","abs_sum","dram__bytes_read.sum","Kbyte","12"
"1","412","abs_sum","dram__bytes_write.sum","byte","4"
"""


def test_counters_read_ncus_table() -> None:
    first, second = counters.parse(NCU)
    assert first == {"name": "absolute", "read": pytest.approx(1.07e9), "written": pytest.approx(1073.7e6)}
    assert second == {"name": "abs_sum", "read": 12e3, "written": 4}
    assert counters.parse("==ERROR== no counters") == []


def test_other_orders_are_gone_afterwards() -> None:
    before = order.order(1 << 20, 4, "inner", "cuda")
    with free_order.order_times(0.5, 2):
        other = order.order(1 << 20, 4, "inner", "cuda")
    assert (other.lanes, other.segments) == (before.lanes // 2, before.segments * 2)
    assert order.order(1 << 20, 4, "inner", "cuda") == before


def test_a_changed_toolchain_shares_no_plans() -> None:
    tools = plans.planned_by(workloads.select(workloads.WORKLOADS, "P01")[0])._toolchain()
    assert not tools.own(tools)


def test_errors_are_recorded_without_the_files_of_the_machine() -> None:
    from benchmarks import gpu

    assert gpu._short(ValueError("no such kernel\nDuring: typing of /a/file.py")) == "ValueError: no such kernel"
