"""NVRTC's version, without loading NVRTC where that is known already.

In: nothing. Out: the version that `nvrtc.version` gives. Loading the library takes some 15 ms, and a process that finds
its kernels in the disk cache needs no compiler, only the name of the one that made them. So who has loaded it leaves a
note in the cache: where the library lies, and its version. A note holds for as long as that very file lies there and
nothing that decides which file is found has changed: the variables and folders by which CuPy and the system's loader
look for it, and CuPy's own version. What is compiled is always named by the library that compiles it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache as once
from importlib import import_module

from fuser.codegen.cuda import nvrtc
from fuser.runtime import cache

VARIABLES = ("LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME", "CONDA_PREFIX", *(("PATH",) if os.name == "nt" else ()))
PLACES = ("/etc/ld.so.cache", "/usr/local/cuda", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu")
LIBRARIES = ("", "lib", "lib64", "bin")  # of a folder that a variable names


def version() -> tuple[int, int]:
    """NVRTC's version; DeviceError where there is no CuPy or no NVRTC."""
    if nvrtc.is_loaded():
        return _noted()
    entry = cache.store().load(_key())
    if entry is not None and entry.record["file"] == _file(entry.record["path"]):
        major, minor = entry.record["version"]
        return int(major), int(minor)
    return _noted()


@once
def _noted() -> tuple[int, int]:
    """The version as the library says it, left as a note for other processes."""
    found, path = nvrtc.version(), _loaded_from()
    if path:
        cache.store().save(_key(), {}, {"path": path, "file": _file(path), "version": list(found)})
    return found


def _key() -> str:
    return cache.key_of("nvrtc", *_surroundings())


def _loaded_from() -> str:
    """The file that CuPy has loaded as NVRTC; empty where it does not say."""
    try:
        return str(import_module("cuda.pathfinder").load_nvidia_dynamic_lib("nvrtc").abs_path or "")
    except (ImportError, AttributeError, RuntimeError):  # an older CuPy, which looks for its libraries by itself
        return ""


def _surroundings() -> Iterator[object]:
    """All that decides which file is found."""
    cupy = sys.modules.get("cupy")
    yield getattr(cupy, "__version__", None), sys.prefix
    for name in VARIABLES:
        value = os.environ.get(name, "")
        yield name, value
        for part in filter(None, value.split(os.pathsep)):
            yield from (_file(os.path.join(part, inner)) for inner in LIBRARIES)
    yield from map(_file, PLACES)
    for place in sys.path:
        yield from map(_file, _wheels(os.path.join(place, "nvidia")))


def _wheels(folder: str) -> Iterator[str]:
    """Where NVIDIA's wheels put their libraries."""
    yield folder
    with suppress(OSError), os.scandir(folder) as found:
        for path in sorted(entry.path for entry in found):
            yield from (path, os.path.join(path, "lib"), os.path.join(path, "bin"))


def _file(path: str) -> list[object]:
    """What the file system says of a file or folder now."""
    try:
        status = os.stat(path)
    except OSError:
        return [path, 0, 0, 0, 0]
    return [os.path.realpath(path), status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
