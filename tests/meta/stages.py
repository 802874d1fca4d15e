"""One program at every stage: the dumps that docs/architecture.md shows.

In: the program of the page. Out: text by stage. `python -m tests.meta.stages` writes them into the page between the
marks `<!-- dump: NAME -->` and `<!-- end -->`; tests/meta/test_docs.py holds the page against them. Nothing here needs
a GPU, NVRTC or a certain CPU.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from textwrap import wrap
from typing import Any

import fuser
from fuser.codegen.cuda.printer import print_kernel
from fuser.codegen.expand import expand
from fuser.codegen.llvm.emit import emit
from fuser.codegen.llvm.host import Host
from fuser.codegen.text import kernel_text
from fuser.passes import pipeline
from fuser.plan import Plan
from fuser.runtime import bound
from fuser.text import print_graph
from fuser.toolchain import Built, Resources
from tests.meta.project import ROOT

PAGE = ROOT / "docs" / "architecture.md"
PROGRAM = '''def rms_norm(x: bf16[n, d], w: bf16[d], eps: float = 1e-6) -> bf16[n, d]:
    """Scale each row to unit root mean square."""
    h = f32(x)
    return bf16(h * rsqrt(mean(h * h, axis=-1, keepdims=True) + eps)) * w
'''
SPECS = ("bf16[4096, 64]", "bf16[64]", 1e-6)
SIZES: Mapping[str, Any] = {"n": 4096, "d": 64, "=eps": 1e-6}
MACHINE = Host("", "", "", "", vector_bytes=32, native_half=True)  # 8 lanes of f32, wherever this runs
RUN, HEAD, TAIL = 12, 9, 2  # of a run of more lines than RUN, alike in indentation, the first and last are shown
WIDTH = 100


def dumps() -> dict[str, str]:
    """Stage -> text."""
    compiled = fuser.parse(PROGRAM, "rms_norm.fuse").rms_norm
    gpu, cpu = (compiled.plan(*SPECS, device=device) for device in ("sm_90", "cpu"))
    traced = compiled._source.trace(("x", "w", "eps"), _specs(gpu), None, {})
    (kernel,), (native,) = _lowered(gpu), _lowered(cpu)
    texts = {
        "program": PROGRAM,
        "traced": print_graph(traced),
        "prepared": print_graph(pipeline.prepare(traced)),
        "keys": "\n".join(_keys(gpu)),
        "group": "\n".join(_group(gpu)),
        "decisions": "\n".join(_decisions(gpu)),
        "schedule": _fields(gpu.schedules[0]),
        "kernel": _excerpt(kernel_text(kernel)),
        "cuda": _excerpt(print_kernel(expand(kernel)).partition('extern "C" ')[2]),
        "cpu-schedule": _fields(cpu.schedules[0]),
        "cpu-kernel": _without_tree(kernel_text(native)),
        "llvm": _loop(str(emit(expand(native), MACHINE))),
        "launch": "\n".join(_launch(gpu, kernel)),
    }
    return {name: "\n".join(_narrow(text.strip("\n"))) for name, text in texts.items()}


def _narrow(text: str) -> Iterator[str]:
    """Lines of at most WIDTH columns: longer ones go on, indented further."""
    for line in text.splitlines():
        inside = len(line) - len(line.lstrip()) + 8
        yield from wrap(line, WIDTH, subsequent_indent=" " * inside, drop_whitespace=True) if line.strip() else [""]


def _specs(plan: Plan) -> list[Any]:
    """What the front end is told: the arguments of the plan's graph, and a weak scalar."""
    from fuser.specs import ArraySpec, ScalarSpec

    return [*(ArraySpec(a.dtype, _own(a)) for a in plan.graph.arguments), ScalarSpec("float")]


def _own(argument: Any) -> Any:
    """An argument's dims before any were found equal: declared names first, then one a further axis."""
    from fuser.hostexpr import sym

    return argument.shape if argument.name == "x" else (sym(f"{argument.name}.0"),)


def _lowered(plan: Plan) -> tuple[Any, ...]:
    lower = plan.toolchain.lower
    return lower(plan.graph, plan.groups[0], plan.schedules[0], plan.device, plan.size_class.layouts)


def _keys(plan: Plan) -> Iterator[str]:
    c = plan.size_class
    lengths, aligned = ", ".join(map(str, c.lengths)), "16-byte aligned" if c.aligned else "unaligned"
    yield "trace key   bf16[n, n], bf16[n], a weak float     (n: neither 0 nor 1)"
    yield f"size class  dims {_pairs(c.dims)}; reduced lengths up to {lengths}; layouts {''.join(c.layouts)};"
    yield f"            {aligned}; {_factors(c.factors)}; {c.index_bits}-bit indices"
    yield "launch key  shapes (4096, 64) (64,), strides (64, 1) (1,), addresses modulo 16, device"


def _factors(factors: Any) -> str:
    return ", ".join(f"{factor} divides {name}" for name, factor in factors)


def _pairs(dims: Any) -> str:
    return ", ".join(f"{name} <= {size}" for name, size in dims)


def _group(plan: Plan) -> Iterator[str]:
    g = plan.groups[0]
    members, inputs = (", ".join(f"%{m}" for m in ids) for ids in (g.members, g.inputs))
    yield f"{g.name}: {g.kind}, members {members}, inputs {inputs}"
    for space, stages in zip(g.spaces, g.stages, strict=True):
        yield f"  space: parallel p = {_dims(space.parallel)}, reduced r = {_dims(space.reduced)}"
        for number, stage in enumerate(stages, 1):
            done = [f"finish %{r.node}, its operand at ({', '.join(map(str, r.index))})" for r in stage.reducers]
            done += [f"store %{s.node} at ({', '.join(map(str, s.index))})" for s in stage.stores]
            yield f"  stage {number}: {'; '.join(done)}"


def _dims(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _decisions(plan: Plan) -> Iterator[str]:
    for d in plan.decisions:
        a, b = plan.names[d.producer], plan.names[d.consumer]
        if d.kind != "view" and a != b:
            numbers = ", ".join(f"{k} {v}" for k, v in d.numbers.items() if k != "saves_launches")
            yield f"{d.verdict}  {f'%{d.producer} {a} -> %{d.consumer} {b}':<34} {d.reason:<15} {numbers}"


def _fields(record: Any) -> str:
    plain = {f.name: f.default for f in dataclasses.fields(record)}
    shown = [f"{k}={v!r}" for k, v in vars(record).items() if v != plain[k]]
    lines, line = [], f"{type(record).__name__}("
    for part in shown:
        if len(line) + len(part) > 100:
            lines.append(line)
            line = "    "
        line += part + ", "
    return "\n".join([*lines, line.rstrip(", ") + ")"])


def _excerpt(text: str) -> str:
    """Long runs of lines that are indented alike, cut in the middle: lanes of a vector repeat one another."""
    out: list[str] = []
    for indent, run in groupby(text.strip("\n").splitlines(), key=lambda line: len(line) - len(line.lstrip())):
        lines = list(run)
        if len(lines) > RUN:
            hidden = len(lines) - HEAD - TAIL
            lines = [*lines[:HEAD], f"{' ' * indent}... {hidden} more", *lines[-TAIL:]]
        out += lines
    return "\n".join(out)


def _without_tree(text: str) -> str:
    """A CPU kernel without the tree in which the lanes' sums are added pairwise."""
    lines = text.strip("\n").splitlines()
    first = next(k for k, line in enumerate(lines) if "register pair_1" in line)
    last = next(k for k, line in enumerate(lines) if "divide" in line and k > first)
    shown = f"        ... {last - first - 1} more: the 16 sums pairwise to 8, 4, 2 and 1"
    return "\n".join([*lines[:first], shown, *lines[last - 1 :]])


def _loop(ir: str) -> str:
    """The body of the loop that sums squares: the first block that multiplies vectors, in LLVM IR."""
    blocks = re.split(r"\n(?=[\w.]+:)", ir)
    block = next(b for b in blocks if "fmul <" in b)
    return _excerpt(block.partition("\n}")[0])


def _launch(plan: Plan, kernel: Any) -> Iterator[str]:
    binder = bound.Binder(plan.graph, SIZES, bound.encode_ctype)
    program = binder.bind([(plan.groups[0], (Built(kernel, None, Resources(), str),))])
    yield "table   " + ", ".join(
        f"{k} {name}" for k, name in enumerate([*(a.name for a in plan.graph.arguments), "result"])
    )
    for step in program.steps:
        assert isinstance(step, bound.Launch)
        scalars = ", ".join(
            f"{s.name}={getattr(v, 'value', v)}"
            for s, v in zip(kernel.scalars, step.scalars, strict=True)
            if v is not None
        )
        yield f"launch  {step.built.kernel.name} grid {step.grid}, block {step.block}, buffers from table {step.slots}"
        yield f"        scalars {scalars}; per call: {', '.join(str(e) for _, _, e in step.dynamic)}"


def written(page: str, texts: Mapping[str, str]) -> str:
    """The page with every dump replaced."""

    def dump(match: re.Match[str]) -> str:
        name, language = match[1], match[2]
        return f"<!-- dump: {name} -->\n```{language}\n{texts[name]}\n```\n<!-- end -->"

    return re.sub(r"<!-- dump: ([\w-]+) -->\n```(\w*)\n.*?\n?```\n<!-- end -->", dump, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), dumps()), encoding="utf-8")
