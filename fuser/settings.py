"""Settings: read once from the environment, typed, listed in one place.

In: `FUSER_*` environment variables. Out: one frozen `Settings`. `fuserc info` prints them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import cache

from fuser.errors import ArgumentError
from fuser.record import dataclass


@dataclass(frozen=True)
class Settings:
    """Every setting, its default and its meaning.

    debug: 0 silent; 1 verifies graphs and kernels between all passes, and shows tracebacks of faults; 2 also writes
    numbered dumps of every stage to `dump_dir`. dump_dir: folder for those dumps.
    num_threads: CPU threads (0: all cores, or OMP_NUM_THREADS).
    pool_bytes: most bytes of recycled CPU buffers kept (0 switches recycling off).
    cache: "off" keeps nothing on disk. cache_dir: folders of the disk cache, separated as in PATH; the first is
    written, all are read (empty: fuser in the user's cache folder). cache_bytes: its size bound. compile: "never"
    refuses to compile what is not in the cache.
    stable: plans print no times and no machine paths, so that they can be diffed.
    line_info: CUDA kernels carry the lines of the program, for profilers. nvtx: so do calls, as NVTX ranges.
    """

    debug: int = 0
    dump_dir: str = "fuser-dumps"
    num_threads: int = 0
    pool_bytes: int = 1 << 30
    cache: str = "on"
    cache_dir: str = ""
    cache_bytes: int = 1 << 30
    compile: str = "auto"
    stable: bool = False
    line_info: bool = False
    nvtx: bool = False


def read(environ: Mapping[str, str]) -> Settings:
    """Settings from an environment; ArgumentError names a variable whose value does not fit."""
    values: dict[str, int | bool | str] = {}
    for f in fields(Settings):
        name = f"FUSER_{f.name.upper()}"
        text = environ.get(name, "")
        if text:
            values[f.name] = _value(name, text, getattr(Settings, f.name))
    if "num_threads" not in values and environ.get("OMP_NUM_THREADS", "").isdigit():
        values["num_threads"] = int(environ["OMP_NUM_THREADS"])
    return Settings(**values)  # type: ignore[arg-type]


@cache
def settings() -> Settings:
    """The process's settings, read at first use."""
    return read(os.environ)


WORDS = {
    "FUSER_COMPILE": ("auto", "never"),
    "FUSER_CACHE": ("on", "off", "1", "0", "yes", "no", "true", "false"),
}  # what settings of few values take


def _value(name: str, text: str, default: int | bool | str) -> int | bool | str:
    """A setting's text as the type of its default."""
    if isinstance(default, bool):
        return text.lower() not in ("0", "false", "no", "off")
    if isinstance(default, str):
        known = WORDS.get(name)
        if known is not None and text.lower() not in known:
            raise ArgumentError(f"{name}={text!r} is not one of {', '.join(known)}", "bad-setting")
        return text
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"{name}={text!r} is not an integer", "bad-setting") from None
