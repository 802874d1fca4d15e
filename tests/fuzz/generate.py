"""Random typed programs: elementwise operators of mixed dtypes, folds over various axes, broadcasts, views, stores.

In: a seed. Out: a `Program`. Every statement is tried by NumPy while the program is made, which tells dtype and shape
and drops what NumPy refuses. `rowwise` keeps to programs in which a row never sees another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.programs import DTYPES, Argument, Array, Program, Rounding, Statement, spell

LARGEST, LONGEST, MOST_AXES = 6000, 300_000, 4
Made = tuple[tuple[str, ...], tuple[str, ...], Rounding] | None  # lines with {t}, operands, rounding

FLOAT_EXACT = (
    "-{0}", "np.abs({0})", "{0} * {0}", "{0} + 1", "1.5 - {0}", "{0} * 0.5", "np.floor({0})", "np.rint({0})",
    "np.sqrt(np.abs({0}))", "np.maximum({0}, 0)", "np.clip({0}, -1, 2)", "np.trunc({0})", "1 / (1 + np.abs({0}))",
    "np.isnan({0})", "np.isfinite({0})", "{0} // 0.75", "{0} % 1.5", "np.sign({0})",
)  # fmt: skip
FLOAT_LIBM = (
    "np.tanh({0})", "np.sin({0})", "np.cos({0})", "np.exp(-np.abs({0}))", "np.log1p(np.abs({0}))", "np.cbrt({0})",
    "np.exp2(np.minimum({0}, 4))", "np.arctan({0})", "np.expm1(np.minimum({0}, 2))", "np.log(1 + np.abs({0}))",
    "np.arcsinh({0})",
)  # fmt: skip
INTEGER = (
    "-{0}", "np.abs({0})", "~{0}", "{0} * 3", "{0} // 3", "{0} % 5", "{0} >> 1", "{0} << 2", "{0} * {0}",
    "np.sign({0})", "{0} + 1", "np.maximum({0}, 2)",
)  # fmt: skip
BOOLEAN = ("~{0}", "np.logical_not({0})", "{0} & True")
BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "np.maximum({0}, {1})", "np.minimum({0}, {1})", "{0} < {1}",
    "{0} >= {1}", "{0} == {1}", "np.fmax({0}, {1})", "{0} / (2 + np.abs({1}))", "np.logical_and({0}, {1})",
)  # fmt: skip
BINARY_LIBM = ("np.hypot({0}, {1})", "np.logaddexp(np.clip({0}, -9, 9), np.clip({1}, -9, 9))")
BINARY_WHOLE = ("{0} & {1}", "{0} | {1}", "{0} ^ {1}")
VIEWS = ("{0}[..., ::-1]", "{0}[..., 1:]", "{0}[..., :-1]", "np.roll({0}, 2, axis=-1)")
MOVES = (  # of rows too
    "{0}.T", "{0}.reshape(-1)", "{0}[::2]", "{0}[None]", "np.flip({0})", "{0}[-1]", "np.ravel({0})", "np.pad({0}, 1)",
    "np.swapaxes({0}, 0, -1)", "{0}[..., None]", "np.broadcast_to({0}, (2,) + {0}.shape)", "np.squeeze({0})",
    "np.repeat({0}, 2, axis=0)", "np.moveaxis({0}, 0, -1)", "{0}.reshape(-1, {0}.shape[0])", "{0}[1:, :-1]",
)  # fmt: skip
CASTS = ("float32", "float64", "int32", "int64", "uint8", "bool", "float16", "bfloat16", "int8", "uint32")
FOLDS: tuple[tuple[str, Rounding], ...] = (
    ("sum", "sum"), ("mean", "sum"), ("max", "exact"), ("min", "exact"), ("any", "exact"), ("all", "exact"),
    ("argmax", "exact"), ("var", "var"), ("std", "std"), ("prod", "prod"), ("sum", "sum"), ("max", "exact"),
)  # fmt: skip


class Maker:
    """Builds one program."""

    def __init__(self, seed: int, statements: int, rowwise: bool = False, rows: int = 0, long: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.seed, self.rowwise, self.long = seed, rowwise, long
        self.values: dict[str, Array] = {}
        self.statements: list[Statement] = []
        n, m = self._dims()
        self.n, self.m = (rows or max(n, 2), m) if rowwise else (n, m)
        self.arguments = self._arguments()
        probe = Program(tuple(self.arguments), (), (), seed)
        self.values.update({a.name: x for a, x in zip(self.arguments, probe.arrays(), strict=True)})
        for _ in range(statements):
            self._statement()

    def program(self) -> Program:
        """The program, with a few of its last values as outputs."""
        made = [s.target for s in self.statements if not s.store]
        count = int(self.rng.integers(1, 4))
        outputs = dict.fromkeys([*made[-count:], *(self._pick(made) for _ in range(count - 1))] if made else [])
        return Program(tuple(self.arguments), tuple(self.statements), tuple(outputs), self.seed).needed()

    # -- choices -----------------------------------------------------------------------------------
    def _pick(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def _dims(self) -> tuple[int, int]:
        small, long = (1, 2, 3, 4, 5, 7, 8, 13, 16), (31, 32, 33, 64, 100, 127, 257)
        n, m = self._pick(small), self._pick(long if self.rng.random() < 0.5 else small)
        if self.long:
            n, m = self._pick((1, 2, 3)), self._pick((4097, 16_385, 20_011, 70_001))
        return (m, n) if self.rng.random() < 0.3 else (n, m)

    def _arguments(self) -> list[Argument]:
        n, m = self.n, self.m
        shapes = [(n, m), (n, m), (m,), (n, 1)] if self.rowwise else [
            (n, m), (n, m), (m,), (n, 1), (1, m), (), (m, n), (2, n, m),
        ]  # fmt: skip
        usual = ("float32", "float32", "float32", "float64", "int32", "int64", "bool", "float16", "bfloat16", "uint8")
        count = int(self.rng.integers(1, 5))
        kinds = [
            ("float32" if k == 0 else self._pick(usual), (n, m) if k == 0 else self._pick(shapes)) for k in range(count)
        ]
        return [Argument(f"x{k}", dtype, shape) for k, (dtype, shape) in enumerate(kinds)]

    def _statement(self) -> None:
        kinds: tuple[Callable[[], Made], ...] = (
            self._unary, self._unary, self._binary, self._binary, self._binary, self._fold, self._fold, self._view,
            self._cast, self._select, self._joined, self._scan, self._updated, self._stored,
        )  # fmt: skip
        for _ in range(20):
            made = self._pick(kinds)()
            if made is not None and self._accept(*made):
                return

    def _accept(self, lines: tuple[str, ...], operands: tuple[str, ...], rounding: Rounding) -> bool:
        store = lines[0].startswith("x")
        target = lines[0].split("[")[0] if store else f"v{len(self.statements)}"
        statement = Statement(target, tuple(line.replace("{t}", target) for line in lines), operands, rounding, store)
        try:
            result = np.asarray(statement.run(self.values))
        except (TypeError, ValueError, IndexError):
            return False
        if (
            result.size > (LONGEST if self.long else LARGEST)
            or result.ndim > MOST_AXES
            or result.dtype.name not in DTYPES
        ):
            return False
        if self.rowwise and (result.ndim != 2 or result.shape[0] != self.n):
            return False
        if store:  # views of the old array would see the new values: leave them alone from here on
            self._forget_views(target)
        self.values[target] = result
        self.statements.append(statement)
        return True

    def _forget_views(self, target: str) -> None:
        readers = {target}
        for s in self.statements:
            if readers & set(s.operands):
                readers.add(s.target)
        self.values = {k: v for k, v in self.values.items() if k == target or k not in readers}

    def _value(self, kinds: str = "", like: Array | None = None) -> str | None:
        """A name: of these kinds, that goes with another value (bfloat16 with itself only)."""
        names = list(self.values)
        good = [k for k in names if not kinds or _kind(self.values[k]) in kinds]
        if like is not None:
            half = like.dtype == DTYPES["bfloat16"]
            good = [k for k in good if (self.values[k].dtype == DTYPES["bfloat16"]) == half]
            fitting = [k for k in good if _broadcasts(self.values[k].shape, like.shape)]
            good = fitting or good
        recent = good[-6:] if self.rng.random() < 0.7 else good
        return self._pick(recent) if recent else None

    # -- statements --------------------------------------------------------------------------------
    def _unary(self) -> Made:
        a = self._value()
        if a is None:
            return None
        kind = _kind(self.values[a])
        libm = kind == "f" and self.rng.random() < 0.4
        text = self._pick({"f": FLOAT_LIBM if libm else FLOAT_EXACT, "i": INTEGER, "b": BOOLEAN}[kind])
        return (f"{{t}} = {text.format(a)}",), (a,), "libm" if libm else "exact"

    def _binary(self) -> Made:
        a = self._value()
        b = a and self._value(like=self.values[a])
        if a is None or b is None:
            return None
        kinds = _kind(self.values[a]) + _kind(self.values[b])
        choices = BINARY + (BINARY_WHOLE if kinds in ("ii", "bb") else BINARY_LIBM if kinds == "ff" else ())
        text = self._pick(choices)
        rounding: Rounding = "libm" if text in BINARY_LIBM else "exact"
        return (f"{{t}} = {text.format(a, b)}",), tuple(dict.fromkeys((a, b))), rounding

    def _select(self) -> Made:
        c, a = self._value("b"), self._value()
        b = a and self._value(like=self.values[a])
        if c is None or a is None or b is None:
            return None
        return (f"{{t}} = np.where({c}, {a}, {b})",), tuple(dict.fromkeys((c, a, b))), "exact"

    def _cast(self) -> Made:
        a = self._value()
        if a is None:
            return None
        to = self._pick(CASTS)
        whole = to not in ("float16", "bfloat16", "float32", "float64", "bool")
        text = f"np.clip(np.nan_to_num({a}), 0, 100)" if whole and _kind(self.values[a]) == "f" else a
        return (f"{{t}} = {text}.astype({spell(to)})",), (a,), "exact"

    def _axis(self, a: str) -> Any:
        rank = self.values[a].ndim
        if self.rowwise:
            return -1
        return self._pick([None, *range(rank), *([-1] if rank else []), *([(0, rank - 1)] if rank > 1 else [])])

    def _fold(self) -> Made:
        a = self._value()
        if a is None:
            return None
        name, rounding = self._pick(FOLDS)
        if rounding == "prod" and _kind(self.values[a]) == "f":
            return None  # over- or underflows, and then says nothing
        axis = self._axis(a)
        keep = ", keepdims=True" if self.rowwise or self.rng.random() < 0.6 else ""
        return (f"{{t}} = np.{name}({a}, axis={axis}{keep})",), (a,), rounding

    def _scan(self) -> Made:
        a = self._value()
        if a is None or self.rng.random() < 0.5:
            return None
        axis = self._axis(a)
        return (f"{{t}} = np.cumsum({a}, axis={0 if isinstance(axis, tuple) else axis})",), (a,), "sum"

    def _view(self) -> Made:
        a = self._value()
        if a is None:
            return None
        texts = VIEWS if self.rowwise else (*VIEWS, *MOVES)
        return (f"{{t}} = {self._pick(texts).format(a)}",), (a,), "exact"

    def _joined(self) -> Made:
        a = self._value()
        b = a and self._value(_kind(self.values[a]), like=self.values[a])
        if a is None or b is None:
            return None
        text = "np.concatenate([{0}, {1}], axis=-1)"
        if not self.rowwise:
            text = self._pick((text, "np.concatenate([{0}, {1}])", "np.stack([{0}, {1}])"))
        return (f"{{t}} = {text.format(a, b)}",), tuple(dict.fromkeys((a, b))), "exact"

    def _updated(self) -> Made:
        """A copy of which a part is replaced."""
        a = self._value()
        b = a and self._value(_kind(self.values[a]), like=self.values[a])
        if a is None or b is None:
            return None
        part = self._pick(("[..., 1:]", "[..., ::2]", "[..., :-1]", "[..., -1:]"))
        reads = self._pick((f"{b}[..., :1]", "0", "1"))
        operands = (a,) if reads in "01" else tuple(dict.fromkeys((a, b)))
        return (f"{{t}} = {a}.copy()", f"{{t}}{part} = {reads}"), operands, "exact"

    def _stored(self) -> Made:
        """A store into an argument."""
        a, b = self._pick(self.arguments).name, self._value()
        if self.rng.random() < 0.6 or b is None or a not in self.values:
            return None
        x, y = self.values[a], self.values[b]
        if x.dtype != y.dtype or x.shape != y.shape or x.ndim == 0:
            return None
        part = "" if self.rng.random() < 0.6 else "..., 1:"
        return (f"{a}[{part or ':'}] = {b}[{part or ':'}]",), tuple(dict.fromkeys((a, b))), "exact"


def _kind(a: Array) -> str:
    return {"b": "b", "i": "i", "u": "i"}.get(a.dtype.kind, "f")


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(p in (q, 1) or q == 1 for p, q in zip(reversed(a), reversed(b), strict=False))


def program(seed: int, statements: int = 10) -> Program:
    """The random program of a seed."""
    return Maker(seed, statements).program()


def rowwise(seed: int, statements: int = 8, rows: int = 5) -> Program:
    """A program that treats each of `rows` rows alike and apart; all values are [rows, something]."""
    return Maker(seed, statements, rowwise=True, rows=rows).program()


def long_program(seed: int) -> Program:
    """A program over axes long enough for reductions and scans to be split among blocks."""
    return Maker(seed, 6, long=True).program()
