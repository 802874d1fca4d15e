"""What the command line does, as functions; and the harness of the scripts in examples/.

In: file names, argument texts. Out: compiled functions, inputs, plans, printed lines. Apart from `cli` so that
examples and tests can use it without a command line.
"""

from __future__ import annotations

import importlib.util
import inspect
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fuser import datagen, specs, trees
from fuser.compiled import Compiled
from fuser.errors import ArgumentError, FuserError, NameResolutionError
from fuser.runtime import arrays
from fuser.specs import ArraySpec

Echo = Callable[[str], Any]


def find(file: str, device: str | None) -> Compiled:
    """The function that `FILE[:function]` means, compiled for `device`."""
    import fuser

    path, _, name = file.rpartition(":") if ":" in file and not Path(file).exists() else (file, "", "")
    if not Path(path).is_file():
        raise ArgumentError(f"there is no file {path}", "no-file")
    known = _functions(path)
    if not known:
        raise ArgumentError(f"{path} defines no function to compile", "no-function")
    if not name and Path(path).stem in known:
        name = Path(path).stem
    if not name and len(known) > 1:
        raise ArgumentError(
            f"{path} has {len(known)} functions", "which-function", notes=[f"{path}:{n}" for n in known]
        )
    if name and name not in known:
        raise NameResolutionError(
            f"{path} has no function `{name}`", "unknown-function", notes=["it has " + ", ".join(known)]
        )
    found = known[name or next(iter(known))]
    compiled = found if isinstance(found, Compiled) else fuser.compile(found)
    return compiled.with_options(device=device) if device else compiled


def _functions(path: str) -> dict[str, Any]:
    """Name -> Compiled (or plain function) of a `.fuse` or `.py` file, in file order."""
    import fuser

    if path.endswith(".py"):
        module = _import(path)
        compiled = {k: v for k, v in vars(module).items() if isinstance(v, Compiled)}
        plain = {
            k: v
            for k, v in vars(module).items()
            if inspect.isfunction(v) and v.__module__ == module.__name__ and not k.startswith("_") and k != "main"
        }
        return compiled or plain
    program = fuser.load(path)
    return {name: program[name] for name in program}


def _import(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"_fuser_script_{Path(path).stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def inputs(compiled: Compiled, args: Sequence[str], dims: str, data: bool = True) -> list[Any]:
    """Values for a function's parameters: from `--arg`, else from declared types and defaults.

    With `data` False arrays are specs only (planning needs no data).
    """
    given = dict(_split(a) for a in args)
    sizes = datagen.parse_dims(dims)
    values = []
    for k, (name, parameter) in enumerate(compiled._signature.parameters.items()):
        if name in given:
            text = given.pop(name)
            plain = not data and specs.looks_like_array(text)
            values.append(arrays.from_specs(specs.parse(text), sizes) if plain else datagen.value(text, sizes, k))
        elif isinstance(parameter.annotation, str) and specs.looks_like_array(parameter.annotation):
            spec = specs.parse(parameter.annotation)
            values.append(datagen.generate("randn", spec, sizes, k) if data else arrays.from_specs(spec, sizes))
        elif parameter.default is not inspect.Parameter.empty:
            values.append(parameter.default)
        else:
            raise ArgumentError(
                f"nothing says what `{name}` is", "missing-arg", notes=[f"add --arg {name}='randn(f32[1024, 1024])'"]
            )
    if given:
        raise ArgumentError(f"{compiled.__name__} has no parameter {', '.join(given)}", "unknown-arg")
    return values


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--arg {text}", "bad-arg", notes=["write --arg name=value"])
    return name.strip(), value


def dump(plan: Any, form: str) -> str:
    """A plan in one of the forms of `--dump-graph`."""
    import json

    if form == "json":
        return json.dumps(plan.to_json(), indent=2) + "\n"
    return str(plan.to_dot() if form == "dot" else plan.to_text())


def run(compiled: Compiled, values: Sequence[Any], checked: bool, out: str | None, echo: Echo) -> Any:
    """Run once, print what came out, optionally check and save."""
    placed = [_on_device(v, compiled) for v in values]
    result = compiled(*placed)
    for k, leaf in enumerate(trees.flatten(result)[0]):
        echo(f"result {k}: {_describe(leaf)}")
    if checked:
        for verdict in compiled.check(*placed):
            echo(f"check: {verdict}")
    if out:
        from fuser.check import to_host

        np.savez(out, *trees.flatten(to_host(result))[0])
        echo(f"saved {out}")
    return result


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


def default_device() -> str:
    """`cuda` where a GPU can be used, else `cpu`."""
    from fuser.runtime import cuda

    return "cpu" if cuda.why_unavailable() else "cuda"


def notice() -> str | None:
    """What to say once when no GPU is used; None where one is."""
    from fuser import device
    from fuser.runtime import cuda

    reason = cuda.why_unavailable()
    if reason is None:
        return None
    return f"device: {device.find('cpu').label}. No GPU used: {reason}. Plan for one: --device sm_90"


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

    from fuser import __version__, device
    from fuser.runtime import cuda
    from fuser.settings import settings

    yield f"fuser {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    for package in ("numpy", "llvmlite", "networkx", "lark", "ml_dtypes", "cupy-cuda13x", "cupy-cuda12x", "torch"):
        try:
            yield f"  {package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            continue
    yield f"cpu: {device.find('cpu').label}"
    reason = cuda.why_unavailable()
    if reason:
        yield f"cuda: not used, {reason}"
    for k in range(cuda.device_count()):
        yield f"cuda:{k}: {device.find(cuda.architecture(k)).label}"
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
    run(tone_map, [value], True, None, echo)
    echo(f"ran on {origin}")


def _photograph() -> tuple[Any, str]:
    """A real photograph if a package that ships one is installed, else random data of its size."""
    try:
        from skimage import data

        return (data.astronaut() / 255).astype(np.float32), "scikit-image's photograph of Eileen Collins"
    except ImportError:
        return np.random.default_rng(0).random(
            (512, 512, 3), dtype=np.float32
        ), "random data (scikit-image has a photograph)"


def main(compiled: Compiled, make: Callable[[], Sequence[Any]]) -> None:
    """Run an example script: `--dump-graph[=form]` plans only; otherwise run on `make()` and check the answer."""
    import argparse

    parser = argparse.ArgumentParser(description=compiled.__doc__)
    parser.add_argument("--dump-graph", nargs="?", const="text", choices=("text", "json", "dot"))
    parser.add_argument("--device", help="cpu, cuda, or (with --dump-graph) an architecture such as sm_90")
    options = parser.parse_args()
    try:
        values = list(make())
        if options.dump_graph:
            plan = compiled.plan(*values, device=options.device or default_device())
            print(dump(plan, options.dump_graph), end="")
            return
        run(compiled.with_options(device=options.device or default_device()), values, True, None, print)
    except FuserError as error:
        sys.exit(f"{type(error).__name__}: {error}")


def argument_spec(value: Any) -> ArraySpec:
    """The spec of an array, for documentation of examples."""
    info = arrays.describe(value)
    return ArraySpec(info.dtype, info.shape)
