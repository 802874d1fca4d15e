"""What the command line names: a function in a file, and values for its parameters.

In: `FILE[:function]`, `--arg` and `--dims` texts. Out: `Found` functions and their inputs. Whatever goes wrong in a
user's file becomes an error of fuser's own that names the line.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuser import datagen, specs
from fuser.compiled import Compiled
from fuser.errors import ArgumentError, FuserError, NameResolutionError, Span
from fuser.files import no_file
from fuser.record import dataclass
from fuser.runtime import arrays
from fuser.specs import ArraySpec


@dataclass(frozen=True)
class Found:
    """A function named on the command line, and the inputs that its script makes for it, if it does."""

    compiled: Compiled
    make: Callable[[], Sequence[Any]] | None = None


def find(file: str, device: str | None) -> Found:
    """The function that `FILE[:function]` means, compiled for `device`."""
    path, _, name = file.rpartition(":") if ":" in file and not Path(file).exists() else (file, "", "")
    if not Path(path).is_file():
        raise no_file(path)
    found = _in_script(path, name) if path.endswith(".py") else Found(_in_program(path, name))
    return replace(found, compiled=found.compiled.with_options(device=device)) if device else found


def _in_program(path: str, name: str) -> Compiled:
    """A function of a `.fuse` file: the one named, else the one named as the file, else the one that no other calls."""
    import fuser

    program = fuser.load(path)
    stem = Path(path).stem
    if name or stem in list(program):
        return program[name or stem]
    try:
        return program[program.entry]
    except ArgumentError as error:
        raise error.with_context(notes=[f"name one: {path}:{n}" for n in program]) from None


def _in_script(path: str, name: str) -> Found:
    """A function of a `.py` file: compiled ones before plain ones, and not the script's own `inputs` and `main`."""
    import fuser

    known = _functions(_import(path))
    make = known.pop("inputs", None)
    compiled = {k: v for k, v in known.items() if isinstance(v, Compiled)}
    offered = compiled or known
    if name and name not in known:
        near = difflib.get_close_matches(name, list(known), 1) or list(known)
        hint = f"did you mean {path}:{near[0]}?" if len(near) == 1 else "it has " + ", ".join(near)
        raise NameResolutionError(f"{path} has no function `{name}`", "unknown-function", notes=[hint])
    if not offered:
        raise ArgumentError(f"{path} defines no function to compile", "no-function")
    name = name or (Path(path).stem if Path(path).stem in offered else "")
    if not name and len(offered) > 1:
        notes = [f"name one: {path}:{n}" for n in offered]
        raise ArgumentError(f"{path} has {len(offered)} functions", "which-function", notes=notes)
    found = known[name or next(iter(offered))]
    usable = callable(make) and len(compiled) <= 1
    return Found(found if isinstance(found, Compiled) else fuser.compile(found), make if usable else None)


def _functions(module: Any) -> dict[str, Any]:
    """The public functions that a script itself defines, compiled or plain, in file order."""
    return {
        k: v
        for k, v in vars(module).items()
        if isinstance(v, Compiled)
        or (inspect.isfunction(v) and v.__module__ == module.__name__ and not k.startswith("_") and k != "main")
    }


def _import(path: str) -> Any:
    """A script as a module; whatever it raises becomes an error that names its line."""
    name = f"_fuser_script_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(Path(path).resolve().parent))  # as `python FILE` does
    try:
        spec.loader.exec_module(module)
    except FuserError:
        raise
    except (Exception, SystemExit) as error:
        raise ArgumentError(
            f"{path} failed: {type(error).__name__}: {error}", "script-failed", _where(error, path)
        ) from error
    finally:
        sys.path.pop(0)
    return module


def _where(error: BaseException, path: str) -> list[Span]:
    """The line of a script that an error came from."""
    if isinstance(error, SyntaxError) and error.lineno:
        return [Span(path, error.lineno, error.offset or 0, error.end_offset or 0, error.text or "")]
    mine = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    return [Span(path, f.lineno or 0, text=f.line or "") for f in mine[-1:]]


def inputs(found: Found, args: Sequence[str], dims: str, data: bool = True) -> list[Any]:
    """Values for a function's parameters: from `--arg`, else from the script's `inputs()`, declared types and defaults.

    With `data` False arrays are specs only (planning needs no data).
    """
    given = dict(_split(a) for a in args)
    sizes = datagen.parse_dims(dims)
    if found.make is not None and not given and not sizes:
        return _made(found)
    parameters = found.compiled._signature.parameters
    unknown = [n for n in given if n not in parameters]
    if unknown:
        notes = [f"it has {', '.join(parameters)}"]
        raise ArgumentError(f"{found.compiled.__name__} has no parameter `{unknown[0]}`", "unknown-arg", notes=notes)
    declared = {n: spec for n, p in parameters.items() if n not in given and (spec := _declared(p)) is not None}
    texts = {n: specs.parse(t) for n, t in given.items() if specs.looks_like_array(t)}
    written = [s for s in (*declared.values(), *texts.values()) if isinstance(s, ArraySpec)]
    unused = [d for d in sizes if not any(d in text for text in (*given.values(), *map(str, written)))]
    if unused:
        raise ArgumentError(f"no argument has a dim `{unused[0]}`", "bad-dims", notes=_known_dims(written))
    sizes = datagen.defaults(written, sizes)
    return [_input(p, k, given.get(n), declared.get(n), sizes, data) for k, (n, p) in enumerate(parameters.items())]


def _made(found: Found) -> list[Any]:
    """What a script's own `inputs()` gives."""
    assert found.make is not None
    path = inspect.getsourcefile(found.make) or ""
    try:
        return list(found.make())
    except FuserError:
        raise
    except Exception as error:
        message = f"`inputs` of {Path(path).name} failed: {type(error).__name__}: {error}"
        raise ArgumentError(message, "script-failed", _where(error, path)) from error


def _known_dims(written: Sequence[ArraySpec]) -> list[str]:
    names = sorted(datagen.defaults(written, {}))
    return [f"there are {', '.join(names)}"] if names else []


def _declared(parameter: inspect.Parameter) -> ArraySpec | None:
    """The array type that a parameter is annotated with; `[n, d]` without a dtype is f32."""
    text = parameter.annotation.strip("'\"") if isinstance(parameter.annotation, str) else ""
    text = f"f32{text}" if text.startswith("[") else text
    spec = specs.parse(text) if "[" in text and specs.looks_like_array(text) else None
    return spec if isinstance(spec, ArraySpec) else None


def _input(
    parameter: inspect.Parameter, seed: int, text: str | None, declared: ArraySpec | None, sizes: Any, data: bool
) -> Any:
    """One parameter's value, or the spec that stands for it."""
    if text is not None:
        call = text.partition("(")[2].rpartition(")")[0] if not text.startswith("@") else ""
        shape = text if specs.looks_like_array(text) else call if specs.looks_like_array(call) else ""
        return arrays.from_specs(specs.parse(shape), sizes) if shape and not data else datagen.value(text, sizes, seed)
    if parameter.default is not inspect.Parameter.empty:
        return parameter.default
    if declared is not None:
        return datagen.generate("randn", declared, sizes, seed) if data else arrays.from_specs(declared, sizes)
    kind = parameter.annotation.strip("'\"") if isinstance(parameter.annotation, str) else parameter.annotation
    numbers = {"int": "3", int: "3", "float": "0.5", float: "0.5", "bool": "True", bool: "True"}
    hint = f"add --arg {parameter.name}={numbers.get(kind, chr(39) + 'randn(f32[1024, 1024])' + chr(39))}"
    raise ArgumentError(f"nothing says what `{parameter.name}` is", "missing-arg", notes=[hint])


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"--arg {text}", "bad-arg", notes=["write --arg name=value"])
    return name.strip(), value
