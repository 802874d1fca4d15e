"""What a row of the operator table is.

In: nothing but dtypes and host expressions; neither CuPy nor llvmlite. Out: the row classes
(`ScalarOp`, `Reduction`, `Scan`, `Composite`, `Opaque`, `Function`), the data that spells an operator
on a device, and `S`, the handle in which rows write arithmetic that every backend can emit.

A scalar operator is either *primitive* on a target (a spelling for the dtype) or *expanded*: its
`expand` function writes it with other operators. So semantics such as Python's floor division, NaN in
maximum, or a polynomial for `exp` are stated once and run on every backend, in vector body and tail alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Union  # Union where a name is not defined yet

from fuser.dtypes import DType, WeakKind

if TYPE_CHECKING:
    from fuser.graph import Node
    from fuser.shapes import Shape

Operand = DType | WeakKind  # what promotion sees of an argument


# -- spellings -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Infix:
    """CUDA: `a OP b`. C promotes narrow integers to int, so a printer casts the result back to its dtype;
    `wraps`: signed overflow is undefined in C, so a printer computes in the unsigned type of the width."""

    symbol: str
    wraps: bool = False


@dataclass(frozen=True)
class Prefix:
    """CUDA: `OP a`; the result is cast back, and `wraps` means, as for `Infix`."""

    symbol: str
    wraps: bool = False


@dataclass(frozen=True)
class Call:
    """CUDA: `name(a, b, ...)`, a builtin that needs no header."""

    name: str


@dataclass(frozen=True)
class Ternary:
    """CUDA: `a ? b : c`."""


@dataclass(frozen=True)
class Convert:
    """Both targets: the machine's conversion between the dtypes of operand and result, in range by contract.

    CUDA: `(T)a`, for f16 a helper of the prelude. LLVM: trunc, sext, zext, fptrunc, fpext, sitofp, fptoui, ...
    `bits`: reinterpret instead (CUDA `__float_as_int` and kin, LLVM bitcast).
    """

    bits: bool = False


@dataclass(frozen=True)
class Instr:
    """LLVM: an IRBuilder instruction such as `fadd`, or `icmp_signed <`; `flag` is its predicate."""

    name: str
    flag: str = ""


@dataclass(frozen=True)
class Intrinsic:
    """LLVM: `llvm.NAME` overloaded on the (vector) type; safe to vectorise."""

    name: str


@dataclass(frozen=True)
class Libm:
    """LLVM: a scalar C function, called lane by lane (so a value never depends on its position)."""

    name: str


Spelling = Infix | Prefix | Call | Ternary | Convert | Instr | Intrinsic | Libm
# key: "i64,u64" (first and second operand; for a row that converts, operand and result), else dtype name ("f32"), else
# kind ("f", "i", "u", "b"), else "*". None says that the row is not primitive there, although a later key would match.
Spellings = Mapping[str, "Spelling | None"]


def pick(spellings: Spellings, dtype: DType, second: DType | None = None) -> Spelling | None:
    """The spelling for the dtypes of the first (and second) operand, most specific key first."""
    pair = (f"{dtype},{second}",) if second is not None else ()
    for key in (*pair, dtype.name, dtype.kind, "*"):
        if key in spellings:
            return spellings[key]
    return None


# -- arithmetic that rows are written in -----------------------------------------------------------
class Emit(Protocol):
    """What a backend offers to `expand`, `combine`, ...: apply an operator, make a literal.

    `apply` takes and gives backend values (kernel-language operands, NumPy arrays, graph nodes);
    `dtype` is the result dtype where it is not that of the first argument.
    """

    def apply(self, op: str, args: Sequence[Any], dtype: DType) -> Any: ...
    def literal(self, value: float | int | bool, dtype: DType) -> Any: ...


Number = Union["S", float, int]


@dataclass(frozen=True)
class S:
    """A scalar in a row's arithmetic: Python operators emit, literals take the handle's dtype.

    No promotion happens here: both operands of a binary operator must have one dtype.
    """

    emit: Emit
    value: Any
    dtype: DType

    def op(self, name: str, *others: Number, dtype: DType | None = None) -> S:
        """Apply any operator of the table with this handle as first argument."""
        args = [self, *(self.like(o) for o in others)]
        out = dtype or self.dtype
        return S(self.emit, self.emit.apply(name, [a.value for a in args], out), out)

    def like(self, other: Number) -> S:
        """A number as a literal of this handle's dtype; handles pass through."""
        if isinstance(other, S):
            return other
        return S(self.emit, self.emit.literal(other, self.dtype), self.dtype)

    def literal(self, value: float | int | bool, dtype: DType) -> S:
        return S(self.emit, self.emit.literal(value, dtype), dtype)

    def cast(self, dtype: DType) -> S:
        """Value conversion (`cast` row)."""
        return self if dtype == self.dtype else self.op("cast", dtype=dtype)

    def bits(self, dtype: DType) -> S:
        """Reinterpret the bits as a dtype of the same width."""
        return self.op("bitcast", dtype=dtype)

    def where(self, yes: Number, no: Number) -> S:
        """Select by this bool handle."""
        typed = next(v for v in (yes, no) if isinstance(v, S))
        a, b = typed.like(yes), typed.like(no)
        return S(self.emit, self.emit.apply("where", [self.value, a.value, b.value], a.dtype), a.dtype)

    def _compare(self, name: str, o: Number) -> S:
        from fuser.dtypes import BOOL

        return self.op(name, o, dtype=BOOL)

    def __add__(self, o: Number) -> S:
        return self.op("add", o)

    def __radd__(self, o: Number) -> S:
        return self.like(o).op("add", self)

    def __sub__(self, o: Number) -> S:
        return self.op("subtract", o)

    def __rsub__(self, o: Number) -> S:
        return self.like(o).op("subtract", self)

    def __mul__(self, o: Number) -> S:
        return self.op("multiply", o)

    def __rmul__(self, o: Number) -> S:
        return self.like(o).op("multiply", self)

    def __truediv__(self, o: Number) -> S:
        return self.op("divide", o)

    def __rtruediv__(self, o: Number) -> S:
        return self.like(o).op("divide", self)

    def __neg__(self) -> S:
        return self.op("negative")

    def __and__(self, o: Number) -> S:
        return self.op("bitwise_and", o)

    def __or__(self, o: Number) -> S:
        return self.op("bitwise_or", o)

    def __xor__(self, o: Number) -> S:
        return self.op("bitwise_xor", o)

    def __invert__(self) -> S:
        return self.op("invert")

    def __lshift__(self, o: Number) -> S:
        return self.op("shl", o)

    def __rshift__(self, o: Number) -> S:
        return self.op("shr", o)

    def __lt__(self, o: Number) -> S:
        return self._compare("less", o)

    def __le__(self, o: Number) -> S:
        return self._compare("less_equal", o)

    def __gt__(self, o: Number) -> S:
        return self._compare("greater", o)

    def __ge__(self, o: Number) -> S:
        return self._compare("greater_equal", o)

    def eq(self, o: Number) -> S:
        return self._compare("equal", o)

    def ne(self, o: Number) -> S:
        return self._compare("not_equal", o)


# -- rows ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cost:
    """What one evaluation costs: issue slots, special-function-unit uses, registers beyond its operands."""

    instructions: float = 1
    sfu: float = 0
    registers: int = 0


@dataclass(frozen=True)
class Names:
    """How users spell a row: names in each namespace, and array methods."""

    numpy: tuple[str, ...] = ()
    cupy: tuple[str, ...] = ()  # empty: as NumPy's
    torch: tuple[str, ...] = ()
    scipy: tuple[str, ...] = ()  # scipy.special
    dsl: tuple[str, ...] = ()  # beyond the row's own name
    methods: tuple[str, ...] = ()


@dataclass(frozen=True)
class Resolution:
    """What a dtype rule decides: the dtype each operand is cast to, and the result's."""

    operands: tuple[DType, ...]
    result: DType


Rule = Callable[[Sequence[Operand]], "Resolution | None"]  # None: these dtypes are refused
Expand = Callable[..., S]  # (*operands: S) -> S; attributes such as a target dtype travel in S.dtype
Vjp = Callable[..., tuple[Any, ...]]  # (g, y, *operands) -> a gradient (or None) per operand


@dataclass(frozen=True, kw_only=True)
class ScalarOp:
    """An elementwise operator.

    `cuda`/`llvm` spell it where it is primitive; elsewhere `expand` writes it. `reference` is NumPy's
    meaning on arrays already cast to the operand dtypes. `ulp` bounds the error against the real
    value by dtype name (exact operators: `exact=True`). `domain` is where tests sample: (low, high) or None for all.
    """

    name: str
    arity: int
    rule: Rule
    reference: Callable[..., Any]
    names: Names = Names()
    cuda: Spellings = field(default_factory=dict)
    llvm: Spellings = field(default_factory=dict)
    expand: Expand | None = None
    cost: Cost = Cost()
    exact: bool = False
    ulp: Mapping[str, float] = field(default_factory=dict)
    domain: tuple[float, float] | None = None
    continuous: bool = True  # False (comparisons, floor...): half operands are rounded first
    vjp: Vjp | None = None
    no_vjp: str = ""  # why there is no derivative, where `vjp` is None
    notes: str = ""  # NaN, signed zero, overflow
    variants: Mapping[str, Variant] = field(default_factory=dict)
    hidden: bool = False  # a helper of other rows, not callable by users
    symbol: str = ""  # DSL/Python operator token, e.g. "+"
    converts: bool = False  # result dtype is an argument: `expand` and `reference` get it last, as `DType`


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A cheaper spelling with a known error, chosen in the graph by error budget, never by a schedule."""

    expand: Expand
    ulp: Mapping[str, float]
    cost: Cost


State = tuple[S, ...]


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """A reduction with tuple state.

    lift(x, i): an element and its i64 index in the reduced axes -> state. combine(a, b): a holds
    earlier indices of each lane; associative up to rounding. identity(dtype): literals, neutral for
    combine. finish(state, n): results, n the element count as a handle of dtype i64.
    `empty`: "identity" (finish of the identity), "error" (ValueError naming "no identity").
    """

    name: str
    state: Callable[[DType], tuple[DType, ...]]
    results: Callable[[DType], tuple[DType, ...]]
    identity: Callable[[DType], tuple[float | int | bool, ...]]
    lift: Callable[[S, S], State]
    combine: Callable[[State, State], State]
    finish: Callable[[State, S], State]
    reference: Callable[[Any, tuple[int, ...]], tuple[Any, ...]]
    accepts: Callable[[DType], DType | None]  # input dtype -> the dtype the operand is cast to; None: refused
    empty: str = "identity"
    uses_index: bool = False
    exact: bool = False
    cost: Cost = Cost()
    ulp_note: str = ""
    names: Names = Names()
    no_vjp: str = ""
    vjp: Vjp | None = None
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """A prefix fold along an axis by a reduction's single-state combiner."""

    name: str
    reduction: str
    reference: Callable[..., Any]
    names: Names = Names()
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class Composite:
    """A named function that lowers to other rows.

    infer gives dtype and shape; lower builds with `fuser.construct`; `reference` is written
    independently of `lower` (both are tested against each other). Parameters are static keywords.
    """

    name: str
    arity: int
    infer: Callable[..., tuple[DType, Shape]]  # (builder, inputs, params: dict) -> (dtype, shape)
    lower: Callable[..., Node]  # (builder, inputs, params: dict) -> Node
    reference: Callable[..., Any]  # (*arrays, **params)
    build: Callable[..., Node] | None = None  # user-facing signature; default: operands, then params by keyword
    names: Names = Names()
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class OpaqueOp:
    """A library call: fused around, never into."""

    name: str
    infer: Callable[..., tuple[DType, Shape]]
    reference: Callable[..., Any]
    flops: Callable[..., Any]  # (input shapes, dtype) -> host expression or int
    build: Callable[..., Node] | None = None
    names: Names = Names()
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A user-facing function with no node of its own: views, creation, compositions of rows.

    build(builder, *args, **kwargs): arguments as the user gave them (nodes, host expressions, Python values).
    """

    name: str
    build: Callable[..., Any]
    names: Names = Names()
    notes: str = ""


Row = ScalarOp | Reduction | Scan | Composite | OpaqueOp | Function


class Table:
    """All rows by name, and by the names users know."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self._spelled: dict[tuple[str, str], Row] = {}

    def register(self, row: Row) -> Row:
        """Add a row; a name may be declared once. Out-of-tree rows come in through this too."""
        if row.name in self.rows:
            raise ValueError(f"operator `{row.name}` is declared twice")
        self.rows[row.name] = row
        n = row.names
        public = () if getattr(row, "hidden", False) else (row.name,)
        columns = {
            "numpy": n.numpy, "cupy": n.cupy or n.numpy, "torch": n.torch, "scipy": n.scipy,
            "dsl": (*public, *n.dsl), "method": n.methods,
        }  # fmt: skip
        for namespace, names in columns.items():
            for name in names:
                if (namespace, name) in self._spelled:
                    other = self._spelled[namespace, name].name
                    raise ValueError(f"{namespace} name `{name}` is claimed by rows `{other}` and `{row.name}`")
                self._spelled[namespace, name] = row
        return row

    def find(self, namespace: str, name: str) -> Row | None:
        """The row a user means by `name` in numpy, cupy, torch, scipy, dsl or method."""
        return self._spelled.get((namespace, name))

    def names(self, namespace: str) -> list[str]:
        """All names of a namespace (for nearest-name hints)."""
        return [n for space, n in self._spelled if space == namespace]

    def scalar(self, name: str) -> ScalarOp:
        row = self.rows[name]
        assert isinstance(row, ScalarOp), name
        return row

    def reduction(self, name: str) -> Reduction:
        row = self.rows[name]
        assert isinstance(row, Reduction), name
        return row

    def of(self, kind: type) -> list[Any]:
        """All rows of one class, in declaration order."""
        return [r for r in self.rows.values() if isinstance(r, kind)]
