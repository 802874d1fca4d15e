"""What a row of the operator table is.

In: nothing but dtypes and host expressions. Out: the row classes (`ScalarOp`, `Reduction`, `Scan`, `Composite`,
`OpaqueOp`, `Function`). The data that spells an operator on a device are in `spelling`, and `S`, the handle in which
rows write arithmetic that every backend can emit, in `handle`.

A scalar operator is either *primitive* on a target (a spelling for the dtype) or *expanded*: its
`expand` function writes it with other operators. So semantics such as Python's floor division, NaN in
maximum, or a polynomial for `exp` are stated once and run on every backend, in vector body and tail alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal  # Union where a name is not defined yet

from fuser.dtypes import DType, WeakKind
from fuser.optable.handle import Emit as Emit
from fuser.optable.handle import Knowing as Knowing
from fuser.optable.handle import Number as Number
from fuser.optable.handle import S as S
from fuser.optable.spelling import Call as Call
from fuser.optable.spelling import Convert as Convert
from fuser.optable.spelling import Infix as Infix
from fuser.optable.spelling import Instr as Instr
from fuser.optable.spelling import Intrinsic as Intrinsic
from fuser.optable.spelling import Join as Join
from fuser.optable.spelling import Libm as Libm
from fuser.optable.spelling import Part as Part
from fuser.optable.spelling import Prefix as Prefix
from fuser.optable.spelling import Spelling as Spelling
from fuser.optable.spelling import Spellings as Spellings
from fuser.optable.spelling import Ternary as Ternary
from fuser.optable.spelling import pick as pick
from fuser.record import dataclass

if TYPE_CHECKING:
    from fuser.graph import Node
    from fuser.hostexpr import HostExpr
    from fuser.shapes import Shape

Operand = DType | WeakKind  # what promotion sees of an argument


# -- rows ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cost:
    """What one evaluation costs: issue slots, special-function-unit uses, registers beyond its operands.

    registers: of the 32-bit form; wide: of the 64-bit form (twice as many where None). Both as NVRTC 13.5 reports them
    for a kernel of that operator alone, less those of a product.
    """

    instructions: float = 1
    sfu: float = 0
    registers: int = 0
    wide: int | None = None

    def scratch(self, nbytes: int) -> int:
        """Registers beyond its operands on values of that many bytes."""
        if nbytes < 8:
            return self.registers
        return 2 * self.registers if self.wide is None else self.wide


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


def is_complex(operand: Operand) -> bool:
    """Whether an operand is of a complex dtype, or a Python complex number."""
    return operand == "complex" or (isinstance(operand, DType) and operand.is_complex)


Rule = Callable[[Sequence[Operand]], "Resolution | None"]  # None: these dtypes are refused
Expand = Callable[..., S]  # (*operands: S) -> S; attributes such as a target dtype travel in S.dtype
Vjp = Callable[..., tuple[Any, ...]]  # (g, y, *operands) -> a gradient (or None) per operand


# The sign of a result. never-below: zero. operand: that of the (only) operand; opposite: the other one. product: of the
# product of both. common: the one that all operands have; difference: with the second's turned; chosen: leaving out the
# first, a condition. largest: of the largest operand.
SignRule = Literal["never-below", "operand", "opposite", "product", "common", "difference", "chosen", "largest"]


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """What a row is on complex operands, written on pairs of reals (`optable.complexes.Z`).

    form(*operands): each a `Z`, or an `S` where the rule asks for a real; gives a `Z`, or an `S` for a real or bool
    result. `reference` is NumPy's meaning on complex arrays, the row's own where it is None.
    """

    rule: Rule
    form: Callable[..., Any]
    reference: Callable[..., Any] | None = None
    notes: str = ""


@dataclass(frozen=True, kw_only=True)
class ScalarOp:
    """An elementwise operator.

    `cuda`/`llvm` spell it where it is primitive; elsewhere `expand` writes it. `reference` is NumPy's
    meaning on arrays already cast to the operand dtypes. `ulp` bounds the error against the real
    value by dtype name (exact operators: `exact=True`). `domain` is where tests sample: (low, high) or None for all.
    `growth`: by operand, what a relative error of it is multiplied by in an f32 result, at most; None: by no bounded
    factor. `sign`: how the result's sign follows from the operands', zeros having every sign; None: it does not.
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
    by_bits: bool = False  # of half operands it is what `expand` makes of their own bits; others compute in f32
    closed: bool = False  # of values of a half type it makes such a value: an operand, or a whole number near it
    growth: tuple[float, ...] | None = None
    sign: SignRule | None = None
    commutes: str = ""  # kinds of results that have the same bits with the operands exchanged (CUDA has one NaN)
    units: tuple[int | None, int | None] = (None, None)  # left and right integers that leave the other operand as it is
    vjp: Vjp | None = None
    no_vjp: str = ""  # why there is no derivative, where `vjp` is None
    notes: str = ""  # NaN, signed zero, overflow
    variants: Mapping[str, Variant] = field(default_factory=dict)
    hidden: bool = False  # a helper of other rows, not callable by users
    symbol: str = ""  # DSL/Python operator token, e.g. "+"
    host: str | Callable[..., HostExpr] = ""  # of numbers alone: the name in host expressions, or what makes one
    converts: bool = False  # result dtype is an argument: `expand` and `reference` get it last, as `DType`
    variant_of: str = ""  # the row that this one is a cheaper spelling of
    pairs: Pairs | None = None  # on complex operands; None: refused
    called: bool = False  # on floats it has a slow path that ptxas calls or branches to
    near: bool = False  # rows `NAME.near` and `NAME.holds` give the same bits without a slow path (`optable.near`)

    def resolve(self, operands: Sequence[Operand]) -> Resolution | None:
        """The row's rule, or where an operand is complex that of its pairs."""
        if self.pairs is not None and any(is_complex(t) for t in operands):
            return self.pairs.rule(operands)
        return self.rule(operands)


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A cheaper spelling of an f32 row with a known error, chosen in the graph (`passes.variants`), never by a
    schedule.

    It makes a row of its own, `NAME.KEY` (`fuser.optable.variants`), which expands to the plain row where `cuda` has no
    spelling. `error`: bound of the relative error. `budget`: it may stand before a rounding to a half type; else (where
    the bound fails for some operand, as the notes say) only under `fast_math`.
    """

    cuda: Spellings
    error: float
    cost: Cost
    budget: bool = True
    notes: str = ""


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
    symmetric: bool = False  # combine(a, b) surely is combine(b, a), bit for bit, in what `finish` reads
    exact: bool = False  # floats that it gives are elements of its operand
    keeps_sign: bool = False  # the first result has the sign that all elements have, if they have one
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


# How a function's result looks into its first array, where NumPy's is a view: axes permuted, the same elements under
# another shape, axes reversed, slices, or read-only.
Looks = Literal["permute", "reshape", "flip", "index", "read"]


@dataclass(frozen=True, kw_only=True)
class Function:
    """A user-facing function with no node of its own: views, creation, compositions of rows.

    build(builder, *args, **kwargs): arguments as the user gave them (nodes, host expressions, Python values). looks:
    for functions that give views; None: the result has memory of its own.
    """

    name: str
    build: Callable[..., Any]
    looks: Looks | None = None
    names: Names = Names()
    notes: str = ""


Row = ScalarOp | Reduction | Scan | Composite | OpaqueOp | Function


class Table:
    """All rows by name, and by the names users know."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self.built_in = 0  # how many of them are fuser's own
        self._spelled: dict[tuple[str, str], Row] = {}

    @property
    def rows(self) -> dict[str, Row]:
        """All rows by name."""
        return self._rows

    @property
    def known(self) -> Mapping[str, Row]:
        """The rows that were looked up so far and more, among them those of all nodes that there are, by name."""
        return self._rows

    @property
    def extended(self) -> bool:
        """Whether there are rows from outside of fuser."""
        return len(self._rows) > self.built_in

    def register(self, row: Row) -> Row:
        """Add a row; a name may be declared once. Out-of-tree rows come in through this too."""
        if row.name in self._rows:
            raise ValueError(f"operator `{row.name}` is declared twice")
        self._rows[row.name] = row
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
        row = self._rows[name]
        assert isinstance(row, ScalarOp), name
        return row

    def plain(self, name: str) -> ScalarOp:
        """The scalar row, or the one that it is a variant of: what CPUs compute."""
        row = self.scalar(name)
        return self.scalar(row.variant_of) if row.variant_of else row

    def reduction(self, name: str) -> Reduction:
        row = self._rows[name]
        assert isinstance(row, Reduction), name
        return row

    def of(self, kind: type) -> list[Any]:
        """All rows of one class, in declaration order."""
        return [r for r in self.rows.values() if isinstance(r, kind)]
