"""CUDA launches natively: all kernels and matrix products of a bound program in one call of a built-in function.

In: an LLVM module. Out: `fuser_launch(self, args, nargs)` in it, of CPython's METH_FASTCALL signature. `self` is the
address of a plan of launches; `args` are the stream, then addresses and the bits of run-time scalars; constants of the
plan follow them in one table, and each kernel's parameters are places in that table. Returns CUDA's error code, 0 for
success. A plan that has a graph is replayed as that, its nodes patched where a word has changed since the last replay;
while another thread does so, its kernels are launched one by one. Nodes of products cannot be patched: a plan with
products has a graph for each set of addresses that they have seen more than once. What no graph fits is launched one
by one, and the plan's `record` told of it. Launched so on the device's default stream, a plan whose counters are zero
after every call takes lasting ones, and clears nothing.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fuser.runtime import native_product
from fuser.runtime.native_words import I8, I32, I64, VOID, P, Writer, c

# Words of a plan of launches; of a step in it; of a graph of it. A step that is a product has no kernel, and at
# S_PLACES the words of `native_product`. L_FIXED: table places that a graph cannot be given anew; G_FIXED: what it has
# there.
(
    L_FUNCTION, L_GIVEN, L_CONSTANTS, L_CONSTANT, L_STEPS, L_STEP, L_GRAPH, L_CLEAR, L_CLEAR_PLACE, L_CLEAR_BYTES,
    L_COUNTERS, L_COUNTER, L_BLAS, L_FIXEDS, L_FIXED, L_RECORD, L_CAPTURE, L_CAPTURED, LAUNCH_WORDS,
) = range(19)  # fmt: skip
STEP_WORDS, COUNTER_WORDS = 7, 2  # of a lasting counter: its place in the table, its address
S_KERNEL, S_GRID_X, S_GRID_Y, S_BLOCK, S_SHARED, S_COUNT, S_PLACES = range(STEP_WORDS)
(
    G_LOCK, G_EXEC, G_REPLAY, G_PATCH, G_LAST, G_CLEAR_NODE, G_PATCH_CLEAR, G_CONTEXT, G_NODES, G_FIXED, G_NEXT,
    GRAPH_WORDS,
) = range(12)  # fmt: skip
CU_LAUNCH = ir.FunctionType(I32, [P, I32, I32, I32, I32, I32, I32, I32, P, P, P]).as_pointer()
CU_CLEAR = ir.FunctionType(I32, [I64, I8, I64, P]).as_pointer()  # cuMemsetD8Async
CU_REPLAY = ir.FunctionType(I32, [P, P]).as_pointer()  # cuGraphLaunch
CU_PATCH = ir.FunctionType(I32, [P, P, P]).as_pointer()  # cuGraphExecKernelNodeSetParams
CU_PATCH_CLEAR = ir.FunctionType(I32, [P, P, P, P]).as_pointer()  # cuGraphExecMemsetNodeSetParams
CU_CAPTURE = ir.FunctionType(I32, [P, I32]).as_pointer()  # cuStreamBeginCapture
CU_CAPTURED = ir.FunctionType(I32, [P, P]).as_pointer()  # cuStreamEndCapture
RELAXED = ir.Constant(I32, 2)  # CU_STREAM_CAPTURE_MODE_RELAXED: what other threads allocate meanwhile is no matter
SUCCESS = ir.Constant(I32, 0)
ONE = ir.Constant(I32, 1)
RAISED = -1  # instead of a code: an exception is set


def write(m: Any) -> Any:
    """Add the functions to a module; gives `start(plan, table, stream) -> code`, which adds the constants and runs."""
    start = _Start(m, "fuser_start", I32, [P, P, P]).write(_Patch(m, "fuser_patch", I32, [P, P, P, P]).write())
    _Launch(m, "fuser_launch", P, [P, P, I64]).write(start)
    _Capture(m, "fuser_capture", P, [P, P, I64]).write()
    return start


class _Launch(Writer):
    """What Python calls with the words of a table."""

    def write(self, start: Any) -> None:
        b = self.b
        owner, args, _ = self.function.args
        plan = self.api("PyLong_AsVoidPtr", P, owner)
        given = self.word(plan, L_GIVEN)
        table = self.room(b.add(given, self.word(plan, L_CONSTANTS)))
        stream = self.api("PyLong_AsVoidPtr", P, self.word(args, 0, P))
        with self.each(given) as k:
            number = self.api("PyLong_AsUnsignedLongLongMask", I64, self.word(args, b.add(k, c(1)), P))
            self.put(table, k, number)
        code = b.call(start, [plan, table, stream])
        self.leave_if(b.icmp_signed("==", code, ir.Constant(I32, RAISED)), ir.Constant(P, None))
        b.ret(self.api("PyLong_FromLong", P, b.sext(code, I64)))


class _Start(Writer):
    """`start(plan, table, stream) -> code`: replay, or launch after launch. The interpreter's lock is let go of."""

    def write(self, patch: Any) -> Any:
        b = self.b
        plan, table, stream = self.function.args
        given, constant = self.word(plan, L_GIVEN), self.word(plan, L_CONSTANT, P)
        with self.each(self.word(plan, L_CONSTANTS)) as k:
            self.put(table, b.add(given, k), self.word(constant, k))
        code = self.variable(I32, SUCCESS)
        blas = self.word(plan, L_BLAS, P)
        handle = native_product.handle(self, blas, code)
        state = self.api("PyEval_SaveThread", P)
        graph = self._fitting(plan, table)
        with b.if_else(self._taken(graph)) as (replay, launch):
            with replay:
                b.store(b.call(patch, [plan, graph, table, stream]), code)
                b.atomic_rmw("xchg", graph, c(0), "release")
            with launch, b.if_then(self.is_zero(b.load(code, typ=I32))):
                self._one_by_one(plan, table, stream, code, (blas, handle))
        self.api("PyEval_RestoreThread", VOID, state)
        wanted = b.and_(self.is_zero(graph), self.differ(self.word(plan, L_RECORD), c(0)))
        with b.if_then(b.and_(wanted, self.is_zero(b.load(code, typ=I32)))):
            self._record(plan, table, code)
        b.ret(b.load(code, typ=I32))
        return self.function

    def _fitting(self, plan: Any, table: Any) -> Any:
        """The plan's graph whose fixed words are those of this call; null where it has none."""
        b = self.b
        places = self.word(plan, L_FIXED, P)

        def fits(graph: Any) -> Any:
            unlike, known = self.variable(I64, c(0)), self.word(graph, G_FIXED, P)
            with self.each(self.word(plan, L_FIXEDS)) as k:
                differs = self.differ(self.word(table, self.word(places, k)), self.word(known, k))
                b.store(b.or_(b.load(unlike, typ=I64), b.zext(differs, I64)), unlike)
            return self.is_zero(b.load(unlike, typ=I64))

        return self.first(self.word(plan, L_GRAPH, P), G_NEXT, fits)

    def _taken(self, graph: Any) -> Any:
        """Whether there is a graph, and this thread has it now."""
        b = self.b
        mine = self.variable(I32, SUCCESS)
        with b.if_then(b.not_(self.is_zero(graph))):
            before = b.atomic_rmw("xchg", graph, c(1), "acquire")
            b.store(b.zext(self.is_zero(before), I32), mine)
        return self.differ(b.load(mine, typ=I32), SUCCESS)

    def _record(self, plan: Any, table: Any, code: Any) -> None:
        """Show Python the words of a call that no graph fits."""
        b = self.b
        answer = self.ask(self.word(plan, L_RECORD, P), self.api("PyLong_FromVoidPtr", P, table))
        with b.if_else(self.is_zero(answer)) as (failed, done):
            with failed:
                b.store(ir.Constant(I32, RAISED), code)
            with done:
                self.api("Py_DecRef", VOID, answer)

    def _one_by_one(self, plan: Any, table: Any, stream: Any, code: Any, library: tuple[Any, Any]) -> None:
        b = self.b
        nbytes, lasting = self.word(plan, L_CLEAR_BYTES), self.differ(self.word(plan, L_COUNTERS), c(0))
        lasting = b.and_(lasting, self.is_zero(stream))
        with b.if_then(lasting), self.records(plan, L_COUNTERS, L_COUNTER, COUNTER_WORDS) as record:
            self.put(table, self.word(record, 0), self.word(record, 1))
        with b.if_then(b.and_(self.differ(nbytes, c(0)), b.not_(lasting))):
            clear = b.inttoptr(self.word(plan, L_CLEAR), CU_CLEAR)
            place = self.word(table, self.word(plan, L_CLEAR_PLACE))
            b.store(b.call(clear, [place, ir.Constant(I8, 0), nbytes, stream]), code)
        native_product.prepare(self, library, table, stream, code)
        with self.records(plan, L_STEPS, L_STEP, STEP_WORDS) as record, b.if_then(self.is_zero(b.load(code, typ=I32))):
            is_kernel = self.differ(self.word(record, S_KERNEL), c(0))
            with b.if_then(is_kernel):
                b.store(self._launch(plan, record, table, stream), code)
            with b.if_then(b.not_(is_kernel)):
                native_product.call(self, library, self.word(record, S_PLACES, P), table, code)
        native_product.leave(self, library)

    def _launch(self, plan: Any, record: Any, table: Any, stream: Any) -> Any:
        b = self.b
        launch = b.inttoptr(self.word(plan, L_FUNCTION), CU_LAUNCH)
        grid_x, grid_y, block, shared = (
            b.trunc(self.word(record, k), I32) for k in (S_GRID_X, S_GRID_Y, S_BLOCK, S_SHARED)
        )
        sizes = [grid_x, grid_y, ONE, block, ONE, ONE, shared]
        kernel, null = self.word(record, S_KERNEL, P), ir.Constant(P, None)
        return b.call(launch, [kernel, *sizes, stream, _parameters(self, record, table), null])


class _Capture(Writer):
    """`fuser_capture(self, args, nargs)`: a product as a graph. `args` are the addresses of its words, of the call's
    table, of where the graph goes, and a stream. The interpreter's lock is kept: to wait for the device or for all of a
    stream is an error, and the end of the capture, while any stream is being captured."""

    def write(self) -> None:
        b = self.b
        owner, args, _ = self.function.args
        plan = self.api("PyLong_AsVoidPtr", P, owner)
        product, table, made, stream = (self.api("PyLong_AsVoidPtr", P, self.word(args, k, P)) for k in range(4))
        code, blas = self.variable(I32, SUCCESS), self.word(plan, L_BLAS, P)
        library = blas, native_product.handle(self, blas, code)
        with b.if_then(self.is_zero(b.load(code, typ=I32))):
            b.store(b.call(b.inttoptr(self.word(plan, L_CAPTURE), CU_CAPTURE), [stream, RELAXED]), code)
            with b.if_then(self.is_zero(b.load(code, typ=I32))):
                native_product.prepare(self, library, table, stream, code)
                native_product.call(self, library, product, table, code)
                native_product.leave(self, library)
                ended = b.call(b.inttoptr(self.word(plan, L_CAPTURED), CU_CAPTURED), [stream, made])
                b.store(b.select(self.is_zero(ended), b.load(code, typ=I32), ended), code)
        b.ret(self.api("PyLong_FromLong", P, b.sext(b.load(code, typ=I32), I64)))


def _parameters(writer: Writer, record: Any, table: Any) -> Any:
    """Addresses of a kernel's parameters: places in the table."""
    count, places = writer.word(record, S_COUNT), writer.word(record, S_PLACES, P)
    parameters = writer.room(count)
    with writer.each(count) as k:
        writer.put(parameters, k, writer.at(table, writer.b.mul(writer.word(places, k), c(8))))
    return parameters


class _Patch(Writer):
    """`patch(plan, graph, table, stream) -> code`: give the graph's nodes the words that have changed, and replay
    it."""

    def write(self) -> Any:
        b = self.b
        plan, graph, table, stream = self.function.args
        last, given = self.word(graph, G_LAST, P), self.word(plan, L_GIVEN)
        changed = self.variable(I32, SUCCESS)
        with self.each(given) as k, b.if_then(self.differ(self.word(table, k), self.word(last, k))):
            b.store(ONE, changed)
        with b.if_then(self.differ(b.load(changed, typ=I32), SUCCESS)):
            self._clear(plan, graph, table, last)
            nodes, number = self.word(graph, G_NODES, P), self.variable(I64, c(0))
            with self.records(plan, L_STEPS, L_STEP, STEP_WORDS) as record:
                k = b.load(number, typ=I64)
                b.store(b.add(k, c(1)), number)
                with b.if_then(self.differ(self.word(record, S_KERNEL), c(0))):
                    self._kernel(record, (graph, self.word(nodes, k, P)), table, last, given)
            with self.each(given) as k:
                self.put(last, k, self.word(table, k))
        replay = b.inttoptr(self.word(graph, G_REPLAY), CU_REPLAY)
        b.ret(b.call(replay, [self.word(graph, G_EXEC, P), stream]))
        return self.function

    def _clear(self, plan: Any, graph: Any, table: Any, last: Any) -> None:
        """The node that sets counters to zero: CUDA_MEMSET_NODE_PARAMS is address, pitch, value, element size, width,
        height."""
        b = self.b
        place, nbytes = self.word(plan, L_CLEAR_PLACE), self.word(plan, L_CLEAR_BYTES)
        moved = self.differ(self.word(table, place), self.word(last, place))
        with b.if_then(b.and_(self.differ(nbytes, c(0)), moved)):
            block = self.room(c(5))
            for k, value in enumerate((self.word(table, place), c(0), c(1 << 32), nbytes, c(1))):
                self.put(block, k, value)
            function = b.inttoptr(self.word(graph, G_PATCH_CLEAR), CU_PATCH_CLEAR)
            words = [self.word(graph, k, P) for k in (G_EXEC, G_CLEAR_NODE, G_CONTEXT)]
            self._unless_zero(b.call(function, [words[0], words[1], block, words[2]]), last)

    def _kernel(self, record: Any, where: tuple[Any, Any], table: Any, last: Any, given: Any) -> None:
        """One node, where a parameter of it has changed: CUDA_KERNEL_NODE_PARAMS is the function, grid, block and
        shared bytes (seven 32-bit words and a gap), parameters, extras."""
        b = self.b
        graph, node = where
        moved = self.variable(I32, SUCCESS)
        places = self.word(record, S_PLACES, P)
        with self.each(self.word(record, S_COUNT)) as k:
            place = self.word(places, k)
            with b.if_then(b.icmp_signed("<", place, given)):
                differs = self.differ(self.word(table, place), self.word(last, place))
                b.store(b.or_(b.load(moved, typ=I32), b.zext(differs, I32)), moved)
        with b.if_then(self.differ(b.load(moved, typ=I32), SUCCESS)):
            x, y, block, shared = (self.word(record, k) for k in (S_GRID_X, S_GRID_Y, S_BLOCK, S_SHARED))
            sizes = (b.or_(x, b.shl(y, c(32))), b.or_(c(1), b.shl(block, c(32))), c(1 | 1 << 32), shared)
            words = self.room(c(7))
            self.put(words, 0, self.word(record, S_KERNEL))
            for k, value in enumerate(sizes):
                self.put(words, k + 1, value)
            self.put(words, 5, _parameters(self, record, table))
            self.put(words, 6, c(0))
            function = b.inttoptr(self.word(graph, G_PATCH), CU_PATCH)
            code = b.call(function, [self.word(graph, G_EXEC, P), node, words])
            self._unless_zero(code, last)

    def _unless_zero(self, code: Any, last: Any) -> None:
        """Give up where a patch failed: no word counts as known, so that the next call patches every node again."""

        def forget() -> None:
            plan = self.function.args[0]
            with self.each(self.word(plan, L_GIVEN)) as k:
                self.put(last, k, c(-1))

        self.leave_if(self.differ(code, SUCCESS), code, forget)
