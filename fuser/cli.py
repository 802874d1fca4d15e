"""The command `fuserc` (and `python -m fuser`): plan, run, explain, emit, check.

In: a FILE (`.fuse` or `.py`, with `:function` where it has several) and options. Out: dumps on stdout, everything else
on stderr. Exit status 0; 1 when fuser refuses or a check fails; 2 for a wrong command line; 70 for a fault of fuser's;
130 when interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from fuser import __version__, progress
from fuser.errors import FuserError

INTERNAL = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # what a shell says of SIGINT

EPILOG = """\b
A FILE is a .fuse program or a Python script; FILE:function names one of its functions. Examples:
  fuserc softmax.fuse --dump-graph --dims n=8192,d=4096 --device sm_90    (no GPU needed)
  fuserc run softmax.fuse --dims n=512,d=1000 --check
  fuserc why softmax.fuse e s
"""


class _Commands(click.Group):
    """`fuserc FILE ...` without a command means `fuserc show FILE ...`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands and self._is_file(args[0]):
            args = ["show", *args]
        return super().resolve_command(ctx, args)

    @staticmethod
    def _is_file(text: str) -> bool:
        """A file, or what was meant to be one: anything that is no plain word."""
        return os.path.exists(text.partition(":")[0]) or not text.isidentifier()


def _options(*wanted: str) -> Callable[[Any], Any]:
    """Shared options by name, so that every command spells them alike."""
    table = {
        "file": click.argument("file", metavar="FILE[:FUNCTION]"),
        "dims": click.option("--dims", default="", metavar="n=8192,d=4096", help="Sizes of declared dims."),
        "device": click.option(
            "--device", default=None, metavar="cpu|cuda|sm_90", help="Where to run, or what to plan for."
        ),
        "arg": click.option(
            "--arg", "args", multiple=True, metavar="x='randn(f32[8, n])'",
            help="An argument: randn, rand, zeros, ones, arange or randint of a type; @file.npy; or a number.",
        ),
        "stable": click.option("--stable", is_flag=True, help="No times and nothing of this machine: for diffs."),
        "quiet": click.option("--quiet", is_flag=True, help="Nothing on stderr but errors: no bars, no notices."),
    }  # fmt: skip

    def decorate(function: Any) -> Any:
        for name in reversed(wanted):
            function = table[name](function)
        return function

    return decorate


def _form(default: str | None) -> Callable[[Any], Any]:
    """`--dump-graph[=text|json|dot|svg|html|FILE]`."""
    return click.option(
        "--dump-graph", "form", is_flag=False, flag_value="text", default=default, callback=_known_form,
        metavar="[text|json|dot|svg|html|FILE.html]",
        help="Print the plan on stdout: as text, JSON (schema 1), Graphviz DOT, SVG or an html page; or write a FILE.",
    )  # fmt: skip


def _known_form(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    from fuser.script import FORMATS, is_form

    if value is not None and not is_form(value):
        raise click.BadParameter(f"{value!r} is not one of {', '.join(FORMATS)}, nor a file name that ends in one")
    return value


@click.group(cls=_Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fuserc")
def cli() -> None:
    """fuser compiles array programs into few fused kernels, and says why."""


@cli.command()
@_options("file", "dims", "device", "arg", "stable")
@_form("text")
def show(file: str, dims: str, device: str | None, args: tuple[str, ...], stable: bool, form: str) -> None:
    """Plan a function and print the plan. `fuserc FILE` means `fuserc show FILE`."""
    from fuser.script import dump

    _prepare(device, stable)
    _print(dump(_plan(file, dims, device, args), form))


@cli.command()
@_options("file", "dims", "device", "arg", "stable")
@click.option("--save", "action", flag_value="save", help="Write PLAN.json for --check and --diff.")
@click.option("--check", "action", flag_value="check", help="Fail where the plan fuses less than PLAN.json.")
@click.option("--diff", "action", flag_value="diff", help="List what differs from PLAN.json.")
@click.argument("saved", required=False, metavar="[PLAN.json]")
def explain(
    file: str, dims: str, device: str | None, args: tuple[str, ...], stable: bool, action: str | None,
    saved: str | None,
) -> None:  # fmt: skip
    """Print everything about a plan: each operator, kernel and reason. Or keep it as a contract: --save PLAN.json."""
    if (action is None) != (saved is None):
        raise click.UsageError("a plan file goes with --save, --check or --diff")
    if action is None or saved is None:
        _prepare(device, stable)
        _print(_plan(file, dims, device, args).explain())
        return
    from fuser import planfile

    if action != "save":  # the saved plan's own device and sizes, unless others are asked for
        device, dims = planfile.defaults(planfile.load(saved), device, dims if dims or args else None)
    _prepare(device, stable)
    _say("\n".join(planfile.act(action, _plan(file, dims, device, args), saved)))


@cli.command()
@_options("file")
@click.argument("a")
@click.argument("b")
@_options("dims", "device", "arg", "stable")
def why(file: str, a: str, b: str, dims: str, device: str | None, args: tuple[str, ...], stable: bool) -> None:
    """Say why values A and B share a kernel, or do not.

    A value is a variable of the program, an operator (`exp`, `exp.2`), or 'line 3'.
    """
    _prepare(device, stable)
    _say(str(_plan(file, dims, device, args).why(a, b)))


@cli.command()
@_options("file", "dims", "device", "arg", "stable", "quiet")
@click.option("--out", default=None, metavar="o.npz", help="Save the results.")
@click.option("--check", "checked", is_flag=True, help="Compare with the reference.")
@_form(None)
def run(
    file: str, dims: str, device: str | None, args: tuple[str, ...], stable: bool, quiet: bool, out: str | None,
    checked: bool, form: str | None,
) -> None:  # fmt: skip
    """Run a function on given or random data."""
    from fuser import script, targets

    _prepare(device, stable, quiet)
    found = targets.find(file, device)
    values = targets.inputs(found, args, dims)
    if form:
        _print(script.dump(found.compiled.plan(*values), form))
    script.run(found.compiled, values, checked, out, _say)


@cli.command()
@_options("file", "dims", "device", "arg", "quiet")
def check(file: str, dims: str, device: str | None, args: tuple[str, ...], quiet: bool) -> None:
    """Run a function and compare every result with the reference; a .py file's unsupported calls are listed first."""
    from fuser import script, targets
    from fuser.frontend.scan import check_file

    check_file(file)
    _prepare(device, False, quiet)
    found = targets.find(file, device)
    script.check(found.compiled, targets.inputs(found, args, dims), _say)


@cli.command()
@_options("file", "dims", "device", "arg")
def emit(file: str, dims: str, device: str | None, args: tuple[str, ...]) -> None:
    """Print the generated source of every kernel: CUDA C for sm_XX or cuda, LLVM IR for cpu."""
    _prepare(device, False)
    plan = _plan(file, dims, device, args)
    mark = ";" if plan.device.kind == "cpu" else "//"
    for name, source in plan.sources().items():
        _say(f"{mark} {name}\n{source}")


@cli.command()
@_options("file", "dims", "device", "arg", "quiet")
def report(file: str, dims: str, device: str | None, args: tuple[str, ...], quiet: bool) -> None:
    """Measure a function: time, bytes, share of this machine's copy, and what holds it up."""
    from fuser import script, targets

    _prepare(device, False, quiet, still=True)
    found = targets.find(file, device)
    script.report(found.compiled, targets.inputs(found, args, dims), _say)


@cli.command()
@_options("file", "dims", "device", "arg", "quiet")
@click.option("--tune", is_flag=True, help="First measure other schedules; what wins is kept in the disk cache.")
@click.option("--samples", default=20, show_default=True, help="Runs that a median is taken of.")
@click.option("--json", "out", default=None, metavar="bench.json", help="Also write the numbers, with this machine's.")
def bench(
    file: str, dims: str, device: str | None, args: tuple[str, ...], quiet: bool, tune: bool, samples: int,
    out: str | None,
) -> None:  # fmt: skip
    """Measure a function as `report` does, after tuning its kernels if asked. Tuning never changes a result."""
    from fuser import script, targets

    _prepare(device, False, quiet, still=True)
    found = targets.find(file, device)
    script.bench(found.compiled, targets.inputs(found, args, dims), tune, samples, out, _say)


@cli.command()
@click.argument("action", type=click.Choice(("info", "clear")))
def cache(action: str) -> None:
    """Say what the disk cache holds, or empty it."""
    from fuser import script

    for line in script.cache_lines() if action == "info" else script.clear_cache():
        click.echo(line)


@cli.command()
@click.argument("pattern", default="")
def ops(pattern: str) -> None:
    """List the operators whose name contains PATTERN."""
    from fuser.script import operator_lines

    lines = list(operator_lines(pattern))
    for line in lines:
        click.echo(line)
    if not lines:
        raise click.ClickException(f"no operator has `{pattern}` in its name")


@cli.command()
@_options("device", "stable")
def demo(device: str | None, stable: bool) -> None:
    """Compile a small program, show its plan, run it on a photograph, check the answer."""
    from fuser.script import demo as run_demo

    _prepare(device, stable)
    run_demo(device, _say)


@cli.command()
def info() -> None:
    """Versions, devices and settings."""
    from fuser.script import info_lines

    for line in info_lines():
        click.echo(line)


def _say(line: str) -> None:
    _print(line + "\n")


def _print(text: str) -> None:
    with progress.aside():
        click.echo(text, nl=False)


def _plan(file: str, dims: str, device: str | None, args: tuple[str, ...]) -> Any:
    from fuser import script, targets

    found = targets.find(file, None)
    values = targets.inputs(found, args, dims, data=False)
    return found.compiled.plan(*values, device=device or script.default_device())


def _prepare(device: str | None, stable: bool, quiet: bool = False, still: bool = False) -> None:
    """Settings of this run, and bars until its end (`still` as for `progress.shown`); with no device asked for and no
    GPU, one line on stderr that says what is used instead."""
    from fuser.script import notice, set_stable

    if stable:
        set_stable()
    line = notice() if device is None and not quiet else None
    if line:
        click.echo(line, err=True)
    click.get_current_context().with_resource(progress.shown(quiet, still))


def main() -> None:
    """Entry point: whatever goes wrong is said in a line or a few, never by a traceback (FUSER_DEBUG=1 shows it)."""
    try:
        cli.main(prog_name="fuserc", standalone_mode=False)
    except FuserError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `fuserc ops | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except MemoryError as error:
        click.echo(f"out of memory: {error}", err=True)
        sys.exit(1)
    except Exception as error:
        if os.environ.get("FUSER_DEBUG", "0") != "0":
            raise
        click.echo(f"{type(error).__name__}: {error}\n  a fault of fuser; FUSER_DEBUG=1 shows where", err=True)
        sys.exit(INTERNAL)
