"""The command `fuserc` (and `python -m fuser`): plan, run, explain, emit, check.

In: a FILE (`.fuse` or `.py`, with `:function` where it has several) and options. Out: dumps on stdout, everything else
on stderr. Exit status 0; 1 when fuser refuses or a check fails; 2 for a wrong command line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from fuser.errors import FuserError

FORMATS = ("text", "json", "dot")


class _Commands(click.Group):
    """`fuserc FILE ...` without a command means `fuserc show FILE ...`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


def _options(*wanted: str) -> Callable[[Any], Any]:
    """Shared options by name, so that every command spells them alike."""
    table = {
        "file": click.argument("file"),
        "dims": click.option("--dims", default="", metavar="n=8192,d=4096", help="Sizes of named dims."),
        "device": click.option("--device", default=None, metavar="cpu|cuda|sm_90", help="Where to plan or run."),
        "arg": click.option(
            "--arg", "args", multiple=True, metavar="x='randn(f32[8, n])'", help="An argument's value."
        ),
        "stable": click.option("--stable", is_flag=True, help="No times and no paths: for diffs."),
    }

    def decorate(function: Any) -> Any:
        for name in reversed(wanted):
            function = table[name](function)
        return function

    return decorate


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """fuser: fuses array programs into few kernels, and says why."""


@cli.command()
@_options("file", "dims", "device", "arg", "stable")
@click.option("--dump-graph", "form", is_flag=False, flag_value="text", default="text", type=click.Choice(FORMATS))
def show(file: str, dims: str, device: str | None, args: tuple[str, ...], stable: bool, form: str) -> None:
    """Plan FILE[:function] and print the plan."""
    from fuser.script import dump

    _be_stable(stable)
    _notice(device)
    click.echo(dump(_plan(file, dims, device, args), form), nl=False)


@cli.command()
@_options("file", "dims", "device", "arg", "stable")
def explain(file: str, dims: str, device: str | None, args: tuple[str, ...], stable: bool) -> None:
    """Print the plan of FILE[:function] in words (the text form of --dump-graph)."""
    _be_stable(stable)
    _notice(device)
    click.echo(_plan(file, dims, device, args).explain(), nl=False)


@cli.command()
@_options("file")
@click.argument("a")
@click.argument("b")
@_options("dims", "device", "arg")
def why(file: str, a: str, b: str, dims: str, device: str | None, args: tuple[str, ...]) -> None:
    """Say why values A and B of FILE[:function] share a kernel, or do not."""
    click.echo(str(_plan(file, dims, device, args).why(a, b)))


@cli.command()
@_options("file", "dims", "device", "arg")
@click.option("--out", default=None, metavar="o.npz", help="Save the results.")
@click.option("--check", "checked", is_flag=True, help="Compare with the reference.")
@click.option("--dump-graph", "form", is_flag=False, flag_value="text", default=None, type=click.Choice(FORMATS))
def run(
    file: str, dims: str, device: str | None, args: tuple[str, ...], out: str | None, checked: bool, form: str | None
) -> None:
    """Run FILE[:function] on given or random data."""
    from fuser import script

    _notice(device)
    compiled = script.find(file, device)
    values = script.inputs(compiled, args, dims)
    if form:
        click.echo(script.dump(compiled.plan(*values), form), nl=False)
    script.run(compiled, values, checked, out, click.echo)


@cli.command()
@_options("file", "dims", "device", "arg")
def check(file: str, dims: str, device: str | None, args: tuple[str, ...]) -> None:
    """Run FILE[:function] and compare every result with the reference."""
    from fuser import script

    compiled = script.find(file, device)
    for verdict in compiled.check(*script.inputs(compiled, args, dims)):
        click.echo(str(verdict))


@cli.command()
@_options("file", "dims", "device", "arg")
def emit(file: str, dims: str, device: str | None, args: tuple[str, ...]) -> None:
    """Print the generated source of every kernel: CUDA C for sm_XX or cuda, LLVM IR for cpu."""
    for name, source in _plan(file, dims, device, args).sources().items():
        click.echo(f"// {name}\n{source}")


@cli.command()
@click.argument("pattern", default="")
def ops(pattern: str) -> None:
    """List the operators whose name contains PATTERN."""
    from fuser.script import operator_lines

    for line in operator_lines(pattern):
        click.echo(line)


@cli.command()
@_options("device")
def demo(device: str | None) -> None:
    """Compile a small program, show its plan, run it on a photograph or on random data, check the answer."""
    from fuser.script import demo as run_demo

    _notice(device)
    run_demo(device, click.echo)


@cli.command()
def info() -> None:
    """Versions, devices and settings."""
    from fuser.script import info_lines

    for line in info_lines():
        click.echo(line)


def _plan(file: str, dims: str, device: str | None, args: tuple[str, ...]) -> Any:
    from fuser import script

    compiled = script.find(file, None)
    return compiled.plan(*script.inputs(compiled, args, dims, data=False), device=device or script.default_device())


def _be_stable(stable: bool) -> None:
    if stable:
        import os

        from fuser.settings import settings

        os.environ["FUSER_STABLE"] = "1"
        settings.cache_clear()


def _notice(device: str | None) -> None:
    """With no device asked for and no GPU: one line on stderr that says what is used instead, and why."""
    if device is None:
        from fuser.script import notice

        line = notice()
        if line:
            click.echo(line, err=True)


def main() -> None:
    """Entry point: errors of fuser's own are printed without a traceback."""
    try:
        cli.main(standalone_mode=False)
    except FuserError as error:
        click.echo(f"{type(error).__name__}: {error}", err=True)
        sys.exit(1)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
