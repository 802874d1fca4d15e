"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations


def size(nbytes: float) -> str:
    """Bytes in decimal units: `268 MB`, `1.07 GB`, `12 B`."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5 or unit == "GB":
            return f"{digits(nbytes)} {unit}"
        nbytes /= 1000
    return f"{digits(nbytes)} TB"


def flops(count: float) -> str:
    """Floating-point operations as `34 GFLOP`."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 999.5 or unit == "T":
            return f"{digits(count)} {unit}FLOP"
        count /= 1000
    return f"{digits(count)} PFLOP"


def time(microseconds: float) -> str:
    """Microseconds as `68 us` or `1.2 ms`."""
    if microseconds < 999.5:
        return f"{digits(microseconds)} us"
    return f"{digits(microseconds / 1000)} ms"


def digits(value: float) -> str:
    """Three significant digits at most, integers from 100 on."""
    if value >= 99.5 or value == int(value):
        return f"{value:.0f}"
    return f"{value:.3g}"


def count(n: int, noun: str) -> str:
    """`1 kernel`, `2 kernels`, `2 launches`, `2 entries`."""
    if n == 1:
        return f"{n} {noun}"
    plural = noun[:-1] + "ies" if noun.endswith("ry") else noun + ("es" if noun.endswith("ch") else "s")
    return f"{n} {plural}"
