"""`Program`: functions, signatures, entry, specs."""

from __future__ import annotations

import inspect
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fuser.dtypes import BF16, F32
from fuser.errors import ArgumentError, DTypeError, NameResolutionError
from fuser.frontend.program import MISSING, Program
from fuser.hostexpr import sym
from fuser.specs import ArraySpec, ScalarSpec, parse, symbolic_shape
from fuser.trees import ArrayLeaf, HostLeaf, StaticLeaf

TEXT = '''"""Norms."""
EPS = 1e-6


def helper(h):
    return h * h


def rms_norm(
    x: bf16[..., d],
    w: bf16[d], b=None, eps: float = EPS * 2, *, mode: str = "rms",
) -> bf16[..., d]:
    """Scale rows."""
    return x * w * helper(eps)
'''


def test_signature() -> None:
    program = Program(TEXT, "norms.fuse")
    assert program.functions == ("helper", "rms_norm")
    assert program.entry == "rms_norm"
    assert program.doc == "Norms."
    s = program.signature("rms_norm")
    assert str(s) == (
        'rms_norm(x: bf16[..., d], w: bf16[d], b=None, eps: float = EPS * 2, *, mode: str = "rms") -> bf16[..., d]'
    )
    assert (s.doc, s.line) == ("Scale rows.", 9)
    x, w, b, eps, mode = s.parameters
    assert (x.kind, x.dtype, x.dims, x.default, x.required) == ("array", BF16, ("...", "d"), MISSING, True)
    assert (w.dims, b.kind, b.default) == (("d",), "any", None)
    assert (eps.kind, eps.weak, eps.default) == ("scalar", "float", 2e-6)
    assert (mode.kind, mode.default, mode.keyword_only) == ("static", "rms", True)
    assert x.axis_names(3) == (None, None, "d")
    assert program.dim_names("rms_norm", "w", 1) == ("d",)


def test_python_signature_binds_as_python_does() -> None:
    signature = Program(TEXT).python_signature("rms_norm")
    assert signature.parameters["mode"].kind is inspect.Parameter.KEYWORD_ONLY
    bound = signature.bind(1, 2, mode="x")
    bound.apply_defaults()
    assert bound.arguments == {"x": 1, "w": 2, "b": None, "eps": 2e-6, "mode": "x"}


def test_entry_of_several_functions() -> None:
    with pytest.raises(ArgumentError, match="`f`, `g`"):
        _ = Program("def f(x): return x\ndef g(x): return x\n").entry


def test_unknown_function() -> None:
    with pytest.raises(NameResolutionError, match=r"no function `rms_nrm`(.|\n)*did you mean `rms_norm`"):
        Program(TEXT).signature("rms_nrm")


def test_a_one_liner() -> None:
    program = Program.from_lambda("lambda x, y=2: 2*x + 3*y**2")
    assert program.functions == ("lambda",)
    graph = program.build("lambda", [parse("f32[n]")])
    assert [n.op for n in graph.nodes if n.op not in ("scalar", "view", "input")] == ["multiply", "add"]


def test_defaults_may_be_left_out() -> None:
    program = Program("def f(x, k=2, name='a'):\n    return x * k if name == 'a' else x\n")
    assert len(program.build("f", [parse("f32[n]")]).nodes) == 4
    with pytest.raises(ArgumentError, match="also needs `x`"):
        program.build("f", [])
    with pytest.raises(ArgumentError, match="takes 3 arguments, not 4"):
        program.build("f", [parse("f32[n]")] * 4)


def test_results_say_what_they_are() -> None:
    graph = Program("def f(x, h: float):\n    x += 1\n    return x, x[1:], h * 2, 3, None\n").build(
        "f", [parse("f32[n]"), ScalarSpec("float")]
    )
    whole, part, host, number, nothing = graph.output_tree.leaves
    assert whole == ArrayLeaf(0, argument=0)
    assert part == ArrayLeaf(1, argument=None)
    assert isinstance(host, HostLeaf)
    assert str(host.expr) == "h * 2"
    assert [leaf.value for leaf in (number, nothing) if isinstance(leaf, StaticLeaf)] == [3, None]
    assert [e.argument for e in graph.effects] == [0]
    assert graph.effects[0].node is graph.outputs[0]


def test_constants_are_known_while_compiling() -> None:
    with pytest.raises(DTypeError) as caught:
        Program("A = zeros(3)\ndef f(x):\n    return x\n")
    assert caught.value.slug == "constant"


def test_threads_parse_at_once() -> None:
    """One grammar serves the process; layout keeps no state between tokens of different texts."""
    texts = [f"def f(x):\n    for i in range({k}):\n        x = (x +\n  {k})\n    return x\n" for k in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda t: len(Program(t).build("f", [parse("f32[n]")]).nodes), texts * 4))
    assert together == [len(Program(t).build("f", [parse("f32[n]")]).nodes) for t in texts] * 4


def test_lark_is_imported_by_the_first_program_only() -> None:
    code = "import sys, fuser.frontend.program; assert 'lark' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_spec_texts() -> None:
    assert parse("f32[n, 8]") == ArraySpec(F32, (sym("n"), 8))
    assert parse(" bfloat16[ ] ") == ArraySpec(BF16, ())
    assert parse("float") == ScalarSpec("float")
    assert parse("f32[n, 2*d]") == ArraySpec(F32, (sym("n"), 2 * sym("d")))
    assert str(parse("f32[n, 8]")) == "f32[n, 8]"
    for bad in ("d[3]", "f32[n", "f32[-1]", "f32[2**n]", "f32[n()]", "c65[n]", ""):
        with pytest.raises(ArgumentError):
            parse(bad)


def test_symbolic_shapes_prefer_declared_names() -> None:
    taken: set[str] = set()
    assert symbolic_shape((5, 1, 7), ("n", "k", "d"), "x", taken) == (sym("n"), 1, sym("d"))
    assert symbolic_shape((5, 0), ("n", None), "y", taken) == (sym("y.0"), 0)
