"""What the command line does, as functions; and the harness of the scripts in examples/.

In: compiled functions and values. Out: results, plans, printed lines. Apart from `cli` so that examples and tests can
use it without a command line.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fuser import device as devices
from fuser import progress, trees
from fuser.compiled import Compiled
from fuser.errors import ArgumentError, DeviceError, FuserError
from fuser.settings import settings

Echo = Callable[[str], Any]


FORMATS = ("text", "json", "dot", "svg", "html")


def dump(plan: Any, form: str) -> str:
    """A plan in one of the forms of `--dump-graph`; a file name (plan.html) writes that file and says so."""
    import json

    if not is_form(form):
        hint = f"there are {', '.join(FORMATS)}, and file names that end in one"
        raise ArgumentError(f"cannot dump a graph as `{form}`", "bad-out", notes=[hint])
    if form not in FORMATS:
        return _write(dump(plan, form.rpartition(".")[2].replace("txt", "text")), form)
    if form == "json":
        return json.dumps(plan.to_json(), indent=2) + "\n"
    forms = {"dot": plan.to_dot, "svg": plan.to_svg, "html": plan.to_html, "text": plan.to_text}
    return str(forms[form]())


def _write(text: str, path: str) -> str:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror or error}", "bad-out") from None
    return f"wrote {path}\n"


def is_form(text: str) -> bool:
    """Whether `--dump-graph` takes this: a form, or a file name that ends in one."""
    return text in FORMATS or ("." in text and text.rpartition(".")[2] in (*FORMATS[1:], "txt"))


def check(compiled: Compiled, values: Sequence[Any], echo: Echo) -> None:
    """Compare a run with the reference and say how they agree."""
    _check(compiled, _placed(compiled, values), echo)


def _check(compiled: Compiled, placed: Sequence[Any], echo: Echo) -> None:
    for verdict in compiled.check(*placed):
        echo(f"check: {verdict}")


def run(compiled: Compiled, values: Sequence[Any], checked: bool, out: str | None, echo: Echo) -> Any:
    """Run once, print what came out (results, and arguments that were stored into), optionally check and save."""
    from fuser.check import stored

    placed = _placed(compiled, values)
    with progress.task("run"):
        result = compiled(*placed)
    leaves = [leaf for leaf in trees.flatten(result)[0] if leaf is not None]
    changed = stored(compiled, tuple(placed), {})
    for k, leaf in enumerate(leaves):
        echo(f"result {k}: {_describe(leaf)}")
    for name, leaf in changed.items():
        echo(f"argument {name}: {_describe(leaf)}")
    if checked:
        _check(compiled, placed, echo)
    if out:
        _save(out, leaves, changed)
        echo(f"saved {out}")
    return result


def _save(out: str, leaves: Sequence[Any], changed: Mapping[str, Any]) -> None:
    """Results as `arr_0`, `arr_1`, ..., arguments that were stored into by name."""
    from fuser.check import to_host

    try:
        with progress.task("save", now=out):
            np.savez(out, *to_host(list(leaves)), **to_host(dict(changed)))
    except OSError as error:
        raise ArgumentError(f"cannot write {out}: {error.strerror or error}", "bad-out") from None


def _placed(compiled: Compiled, values: Sequence[Any]) -> list[Any]:
    """Inputs where the function runs; DeviceError for an architecture, which can only be planned for."""
    device = devices.find(compiled._options.device or "cpu").name if compiled._options.device != "cuda" else "cuda"
    if device not in ("cpu", "cuda"):
        hint = "plan for it with --dump-graph; run with --device cpu or cuda"
        raise DeviceError(f'cannot run on "{device}": it is an architecture to plan for', "not-a-machine", notes=[hint])
    return [_on_device(v, compiled) for v in values]


def _on_device(value: Any, compiled: Compiled) -> Any:
    """An input moved to the GPU when the function was compiled for it."""
    if not isinstance(value, np.ndarray) or not str(compiled._options.device or "").startswith("cuda"):
        return value
    from fuser.runtime import cuda
    from fuser.runtime.arrays import Place

    cuda.require()
    return cuda.copy_to(Place("cuda"), value)


def _describe(leaf: Any) -> str:
    from fuser.check import host

    array = np.asarray(host(leaf))
    values = np.array2string(array.reshape(-1)[:4], precision=5, separator=", ")
    return f"{array.dtype}{list(array.shape)} {values}{' ...' if array.size > 4 else ''}"


def report(compiled: Compiled, values: Sequence[Any], echo: Echo) -> None:
    """Measure a function and say what its time goes into."""
    echo(str(compiled.report(*_placed(compiled, values))))


def bench(compiled: Compiled, values: Sequence[Any], tune: bool, samples: int, out: str | None, echo: Echo) -> None:
    """Measure, after tuning where asked; `out` gets the numbers as JSON."""
    import json

    placed = _placed(compiled, values)
    tuned = [f"tuned  {line}" for line in compiled.tune(*placed).lines()] if tune else []
    found = compiled.report(*placed, samples=samples)
    echo("\n".join([str(found), *("  " + line for line in tuned)]))
    if out:
        numbers = {**found.to_json(), "tuned": tuned, "machine": list(info_lines())}
        echo(_write(json.dumps(numbers, indent=1) + "\n", out).rstrip())


def cache_lines() -> Iterator[str]:
    """What the disk cache holds and where."""
    from fuser.draw import units
    from fuser.runtime import cache

    store = cache.store()
    if not store.folders:
        yield f"no disk cache: {store.problem}"
    for number, folder in enumerate(store.folders):
        found = list(store.entries(number))
        held = f"{units.count(len(found), 'entry')}, {units.size(sum(status.st_size for _, status in found))}"
        bound = f" of at most {units.size(store.limit)}" if number == 0 else ", read only"
        yield f"{folder}: {held}{bound}"


def clear_cache() -> Iterator[str]:
    """Empty the disk cache's first folder."""
    from fuser.draw import units
    from fuser.runtime import cache

    yield f"removed {units.count(cache.store().clear(), 'entry')}"


def default_device() -> str:
    """`cuda` where a GPU can be used, else `cpu`."""
    from fuser.runtime import cuda

    return "cpu" if cuda.why_unavailable() else "cuda"


def notice() -> str | None:
    """What to say once when no GPU is used; None where one is."""
    from fuser.runtime import cuda

    reason = cuda.why_unavailable()
    if reason is None:
        return None
    return f"device: {devices.find('cpu').label}. No GPU used: {reason}. Plan for one: --device sm_90"


def operator_lines(pattern: str) -> Iterator[str]:
    """One line an operator: name, class, NumPy spelling, notes."""
    from fuser.optable import table

    for row in table().rows.values():
        if pattern in row.name and not getattr(row, "hidden", False):
            spelled = ", ".join(f"np.{n}" for n in row.names.numpy[:2])
            yield f"{row.name:<20} {type(row).__name__.lower():<12} {spelled:<28} {row.notes}".rstrip()


def info_lines() -> Iterator[str]:
    """Versions, devices and settings, one fact a line."""
    from dataclasses import asdict

    from fuser import __version__
    from fuser.runtime import cuda

    yield f"fuser {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    for package in ("numpy", "llvmlite", "networkx", "lark", "ml_dtypes", "cupy-cuda13x", "cupy-cuda12x", "torch"):
        try:
            yield f"  {package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    yield f"cpu: {devices.find('cpu').model}"
    reason = cuda.why_unavailable()
    if reason:
        yield f"cuda: not used, {reason}"
    for k in range(cuda.device_count()):
        yield f"cuda:{k}: {devices.find(cuda.architecture(k)).label}"
    for name, value in asdict(settings()).items():
        yield f"  FUSER_{name.upper()}={value}"


DEMO = '''
def tone_map(photo: f32[h, w, c], exposure: float = 1.6):
    """Expose a photograph, bend its tones, and normalise every channel."""
    lit = photo * exposure
    bent = lit * (1 + lit / 4) / (1 + lit)
    low = min(bent, axis=(0, 1), keepdims=True)
    high = max(bent, axis=(0, 1), keepdims=True)
    return (bent - low) / (high - low)
'''


def demo(device: str | None, echo: Echo) -> None:
    """fuser's main job on real data: compile, show the plan, run, check."""
    import fuser

    photo, origin = _photograph()
    program = fuser.parse(DEMO.strip() + "\n", "tone_map.fuse")
    tone_map = program.tone_map.with_options(device=device or default_device())
    echo(DEMO.strip() + "\n")
    value = _on_device(photo, tone_map)
    echo(tone_map.plan(value).to_text())
    if device and devices.find(device).name != "cpu" and device != "cuda":
        return  # an architecture: planned for only
    run(tone_map, [value], True, None, echo)
    echo(f"ran on {origin}")


def _photograph() -> tuple[Any, str]:
    """A real photograph if a package that ships one is installed, else random data of its size."""
    try:
        from skimage import data

        load: Any = data.astronaut
        return (load() / 255).astype(np.float32), "scikit-image's photograph of Eileen Collins"
    except ImportError:
        return np.random.default_rng(0).random(
            (512, 512, 3), dtype=np.float32
        ), "random data (`pip install 'fuser-compiler[demo]'` brings a photograph)"


def set_stable() -> None:
    """Print no times and nothing of this machine from now on (FUSER_STABLE=1)."""
    os.environ["FUSER_STABLE"] = "1"
    settings.cache_clear()


def main(compiled: Compiled, make: Callable[[], Sequence[Any]]) -> None:
    """Run an example script: `--dump-graph[=form]` plans only; otherwise run on `make()` and check the answer."""
    import argparse

    parser = argparse.ArgumentParser(description=compiled.__doc__)
    parser.add_argument("--dump-graph", nargs="?", const="text", metavar="|".join(FORMATS))
    parser.add_argument("--device", help="cpu, cuda, or (with --dump-graph) an architecture such as sm_90")
    parser.add_argument("--stable", action="store_true", help="no times and nothing of this machine: for diffs")
    options = parser.parse_args()
    if options.stable:
        set_stable()
    try:
        values = list(make())
        if options.dump_graph:
            plan = compiled.plan(*values, device=options.device or default_device())
            print(dump(plan, options.dump_graph), end="")
            return
        run(compiled.with_options(device=options.device or default_device()), values, True, None, print)
    except FuserError as error:
        sys.exit(f"{type(error).__name__}: {error}")
