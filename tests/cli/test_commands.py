"""`fuserc`: each command's output, and what it says instead of a traceback."""

import json
from pathlib import Path

import numpy as np
import pytest

from fuser import __version__
from fuser.cli import main
from fuser.runtime.cache import Store
from fuser.settings import settings
from tests.meta.project import ROOT

EXAMPLES = ROOT / "examples"
SOFTMAX = str(EXAMPLES / "softmax.fuse")
SIZES = ("--dims", "n=8,d=32")


class Shell:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str, status: int = 0) -> str:
        """Standard output of a command that succeeds; else its messages."""
        self.monkeypatch.setattr("sys.argv", ["fuserc", *words])
        code = 0
        try:
            main()
        except SystemExit as left:
            code = int(left.code or 0)
        out, err = self.capsys.readouterr()
        assert code == status, (code, out, err)
        assert "Traceback" not in out + err
        return out if status == 0 else err


@pytest.fixture
def fuserc(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("FUSER_STABLE", "0")
    settings.cache_clear()
    return Shell(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def _settings_again() -> object:
    yield
    settings.cache_clear()


# -- what commands print ---------------------------------------------------------------------------
def test_a_plan_is_printed_for_a_file_alone(fuserc: Shell) -> None:
    out = fuserc(SOFTMAX, "--dump-graph", "--dims", "n=8192,d=4096", "--device", "sm_90")
    assert "n=8192 d=4096, sm_90 (H200)" in out
    assert "1 kernel, was 5 | 268 MB, was 1.07 GB, floor 268 MB" in out
    for line in (
        "x -> m, subtract                    x stays in registers                saves 134 MB, 1 launch",
        "subtract -> e -> s                  one row space                       saves 403 MB, 2 launches",
        "e -> out                            row kept until s is known           saves 268 MB, 1 launch",
    ):
        assert line in out
    assert out.rstrip().endswith("apart: nothing")


def test_a_stable_dump_holds_nothing_of_the_machine(fuserc: Shell) -> None:
    out = fuserc(SOFTMAX, "--stable", "--device", "cpu", *SIZES)
    assert " us" not in out
    assert "cores" not in out
    assert out == fuserc(SOFTMAX, "--stable", "--device", "cpu", *SIZES)


def test_json_and_dot(fuserc: Shell) -> None:
    record = json.loads(fuserc("show", SOFTMAX, "--dump-graph=json", *SIZES, "--device", "cpu"))
    assert record["schema"] == 1
    assert record["dims"] == {"n": 8, "d": 32}
    assert (
        sum(f["saves_bytes"] for f in record["fused"]) <= record["totals"]["bytes_unfused"] - record["totals"]["bytes"]
    )
    assert fuserc(SOFTMAX, "--dump-graph=dot", "--device", "cpu").startswith('digraph "softmax"')


def test_what_is_saved_adds_up() -> None:
    import fuser
    from fuser.draw import because

    for name in ("softmax", "gelu", "layer_norm", "rms_norm_residual"):
        compiled = fuser.load(EXAMPLES / f"{name}.fuse")[{"gelu": "bias_gelu"}.get(name, name)]
        types = {"gelu": ("f32[64, 32]", "f32[32]"), "layer_norm": ("f32[64, 32]", "f32[32]", "f32[32]"),
                 "softmax": ("f32[64, 32]",)}.get(name, ("bf16[64, 32]", "bf16[64, 32]", "bf16[32]"))  # fmt: skip
        plan = compiled.plan(*types, device="sm_90")
        assert len(plan.groups) == 1
        assert sum(e.saves for e in because.edges(plan)) == plan.bytes_unfused - plan.bytes_moved, name


def test_explain_shows_every_kernel_in_full(fuserc: Shell) -> None:
    out = fuserc("explain", str(EXAMPLES / "scores.fuse"), "--device", "sm_90", "--dims", "n=64,d=32,k=16")
    assert out.count("  schedule ") >= 3
    assert "operators" in out
    assert "library" in out


def test_why(fuserc: Shell) -> None:
    assert "row kept until s is known" in fuserc("why", SOFTMAX, "e", "out")
    assert "x stays in registers" in fuserc("why", SOFTMAX, "x", "m", "--device", "sm_90")
    assert fuserc("why", SOFTMAX, "exp", "s").startswith("e -> s  fused (K1): one row space")
    said = fuserc("why", str(EXAMPLES / "adam.py"), "multiply", "p", status=1)
    assert "[ambiguous-name]" in said
    assert "multiply.1  line 15" in said
    assert "did you mean" in fuserc("why", SOFTMAX, "outt", "s", status=1)


def test_run_saves_and_checks(fuserc: Shell, tmp_path: Path) -> None:
    data, results = tmp_path / "x.npy", tmp_path / "y.npz"
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(np.float32)
    np.save(data, x)
    out = fuserc("run", SOFTMAX, "--arg", f"x=@{data}", "--out", str(results), "--check", "--device", "cpu")
    assert "check: result float32[8, 32]" in out
    np.testing.assert_allclose(np.load(results)["arr_0"].sum(axis=1), 1, rtol=1e-5)


def test_run_of_a_program_that_only_stores(fuserc: Shell, tmp_path: Path) -> None:
    program, results = tmp_path / "relax.fuse", tmp_path / "u.npz"
    program.write_text("def relax(u: f32[n]) -> None:\n    u[1:-1] = 0.5 * (u[:-2] + u[2:])\n")
    out = fuserc("run", str(program), "--dims", "n=16", "--out", str(results), "--check", "--device", "cpu")
    assert out.startswith("argument u: float32[16] ")
    assert "check: argument u float32[16]: equal bit for bit" in out
    assert np.load(results)["u"].shape == (16,)


def test_run_with_declared_sums_of_dims(fuserc: Shell) -> None:
    out = fuserc("run", str(EXAMPLES / "swiglu.fuse"), "--dims", "n=4,d=10", "--check", "--device", "cpu")
    assert "bfloat16[4, 10]" in out


def test_a_file_of_several_functions_has_an_entry(fuserc: Shell, tmp_path: Path) -> None:
    program = tmp_path / "two.fuse"
    program.write_text("def half(x):\n    return x / 2\n\n\ndef quarter(x: f32[n]):\n    return half(half(x))\n")
    assert fuserc(str(program), "--device", "cpu").startswith("quarter(")
    assert fuserc(f"{program}:half", "--arg", "x=f32[7]", "--device", "cpu").startswith("half(")
    program.write_text("def a(x: f32[n]):\n    return x / 2\n\n\ndef b(x: f32[n]):\n    return x / 3\n")
    said = fuserc(str(program), status=1)
    assert "[which-function]" in said
    assert f"name one: {program}:b" in said


def test_check_emit_ops_info_version_help(fuserc: Shell) -> None:
    assert fuserc("check", SOFTMAX, *SIZES, "--device", "cpu").startswith("check: result")
    assert "; softmax_rows" in fuserc("emit", SOFTMAX, *SIZES, "--device", "cpu")
    assert "__global__" in fuserc("emit", SOFTMAX, *SIZES, "--device", "sm_90")
    assert "layer_norm" in fuserc("ops", "norm")
    assert f"fuser {__version__}" in fuserc("info")
    assert __version__ in fuserc("--version")
    assert "fuserc why softmax.fuse e s" in fuserc("--help")
    for command in ("show", "explain", "why", "run", "check", "emit", "ops", "demo", "info"):
        assert "Usage: fuserc" in fuserc(command, "--help")


def test_demo(fuserc: Shell) -> None:
    out = fuserc("demo", "--device", "cpu")
    assert "1 kernel, was 11" in out
    assert "check: result float32[512, 512, 3]" in out


def test_demo_for_an_architecture_plans_only(fuserc: Shell) -> None:
    out = fuserc("demo", "--device", "sm_90")
    assert "sm_90 (H200)" in out
    assert "result 0" not in out


# -- refusals --------------------------------------------------------------------------------------
REFUSED = {
    "no-file": ["nowhere.fuse"],
    "unknown-function": [f"{SOFTMAX}:sofmax"],
    "unknown-arg": ["run", SOFTMAX, "--arg", "y=3"],
    "bad-arg": ["run", SOFTMAX, "--arg", "x=__import__('os')"],
    "bad-dims": ["run", SOFTMAX, "--dims", "q=3"],
    "spec": ["run", SOFTMAX, "--arg", "x=randn(g32[3])"],
    "declared-rank": ["run", SOFTMAX, "--arg", "x=f32[3]"],
    "unknown-device": [SOFTMAX, "--device", "sm_9x"],
    "not-a-machine": ["run", SOFTMAX, "--device", "sm_90"],
    "too-large": ["run", SOFTMAX, "--dims", "n=10000000,d=10000000"],
    "bad-out": ["run", SOFTMAX, *SIZES, "--device", "cpu", "--out", "/nowhere/at/all.npz"],
    "syntax": [str(ROOT / "README.md")],
    "missing-arg": [str(EXAMPLES / "adam.py"), "--arg", "p=f32[3]"],
}


@pytest.mark.parametrize("slug", REFUSED)
def test_a_refusal_is_one_of_fusers_errors(slug: str, fuserc: Shell) -> None:
    assert f"[{slug}]" in fuserc(*REFUSED[slug], status=1)


@pytest.mark.parametrize(
    "words", [["frobnicate"], ["--frob"], ["run"], ["why", SOFTMAX, "e"], [SOFTMAX, "--dump-graph=pdf"]]
)
def test_a_wrong_command_line(words: list[str], fuserc: Shell) -> None:
    assert "Usage: fuserc" in fuserc(*words, status=2)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("import nothing_of_this_name\n", "script.py:1  import nothing_of_this_name"),
        ("def f(x:\n", "was never closed"),
        ("x = 1\n", "[no-function]"),
        ("def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x\n", "name one: "),
        ("import sys\nsys.exit(3)\n", "SystemExit"),
    ],
)
def test_a_script_that_fails_is_named_with_its_line(text: str, shown: str, fuserc: Shell, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    assert shown in fuserc("run", str(script), status=1)


def test_a_plain_function_of_a_script_is_compiled(fuserc: Shell, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text('import numpy as np\n\n\ndef f(x: "f32[n]", h: float = 2.0):\n    return np.exp(x) * h\n')
    assert "float32[5]" in fuserc("run", str(script), "--dims", "n=5", "--device", "cpu")
    assert "h: float" in fuserc(str(script), "--device", "cpu")


def test_a_fault_of_fuser_is_said_without_a_traceback(fuserc: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuser.targets.find", lambda *a: 1 / 0)
    monkeypatch.delenv("FUSER_DEBUG", raising=False)
    assert "a fault of fuser; FUSER_DEBUG=1 shows where" in fuserc(SOFTMAX, status=70)


def test_bench_measures_tunes_and_writes_numbers(
    fuserc: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuser.runtime.cache.store", lambda: Store((tmp_path / "kernels",), 1 << 20))
    numbers = tmp_path / "bench.json"
    out = fuserc("bench", SOFTMAX, *SIZES, "--tune", "--samples", "2", "--json", str(numbers))
    assert "verdict" in out
    assert "tuned  K1" in out
    found = json.loads(numbers.read_text())
    assert found["samples"] == 2
    assert found["measured"]["kernels"][0]["label"] == "K1"
    assert found["tuned"][0].startswith("tuned  K1")
