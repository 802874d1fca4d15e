"""Records of `benchmarks startup`: what is kept when some contenders or one device are measured again."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import startup


def record(device: str, date: str, **seconds: float) -> dict[str, Any]:
    stages = {n: {"import": 1.0, "compile()": 0.25, "first call": 0.5, "process": s} for n, s in seconds.items()}
    return {
        "device": device, "date": date, "processor": "P", "cores": 2, "versions": {"python": "3"}, "seconds": stages,
        "samples": {n: [s] for n, s in seconds.items()},
    }  # fmt: skip


def test_contenders_measured_again_replace_themselves_on_the_same_day_only() -> None:
    first = startup.joined({}, record("cpu", "2026-01-02T03:04", fuser=2.0, JAX=3.0))
    again = startup.joined(first, record("cpu", "2026-01-02T05:00", fuser=1.0))
    assert {n: s["process"] for n, s in again["devices"]["cpu"]["seconds"].items()} == {"fuser": 1.0, "JAX": 3.0}
    later = startup.joined(again, record("cpu", "2026-01-03T03:04", fuser=0.5))
    assert list(later["devices"]["cpu"]["seconds"]) == ["fuser"]
    both = startup.joined(again, record("cuda", "2026-01-03T03:04", fuser=4.0))
    assert list(both["devices"]) == ["cpu", "cuda"]
    assert "| fuser | 1.000 | 0.750 | 4.000 | 1 |" in startup.table(both)


def test_a_process_that_gives_a_wrong_result_is_not_a_sample() -> None:
    program = 'mark("compile()")\ny = [3.0]\nmark("first call")\n'
    failed = startup.sample(program.replace("[3.0]", "{(0, 0): 3.0}"), {})
    assert isinstance(failed, str)
    assert "AssertionError: 3.0" in failed
    found = startup.sample(program.replace("[3.0]", "{(0, 0): 1.9545977}"), {"HERE": "new"})
    assert isinstance(found, dict)
    assert list(found) == ["compile()", "first call", "process"]


def test_samples_use_bytecode_whatever_the_surroundings_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    program = 'import sys\nassert not sys.dont_write_bytecode\nmark("first call")\ny = {(0, 0): 1.9545977}\n'
    assert isinstance(startup.sample(program, {}), dict)


def test_slow_contenders_have_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"quick": 1.0, "slow": 10.0}
    monkeypatch.setattr(startup, "sample", lambda name, _: {"process": times[name]} if name in times else "no")
    failed: dict[str, str] = {}
    samples = startup._take_turns({n: (n, {}) for n in ("quick", "slow", "broken")}, 7, failed)
    assert {n: len(found) for n, found in samples.items()} == {"quick": 7, "slow": 2}
    assert failed == {"broken": "no"}
