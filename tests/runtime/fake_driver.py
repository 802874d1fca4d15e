"""A CUDA driver that only takes notes: which kernels are launched how, with which words, alone or in a graph.

Nodes of a graph keep the words that they were given; replaying it notes a launch of each, as the device would run it.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

HANDLE = 0xB1A5
I, L = ctypes.c_int, ctypes.c_longlong
U, SIZE, V, N = ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64


def _function(*arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)


@dataclass
class Graph:
    """Nodes in the order in which they run."""

    nodes: list[Any] = field(default_factory=list)
    dead: bool = False
    template: Graph | None = None


class FakeDriver:
    """counts: parameters of each kernel. seen: launches as (kernel, sizes, stream, words), fills as ("clear", address,
    bytes, stream). codes: what it answers to launches, then 0."""

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts, self.seen, self.codes = counts, [], []  # type: ignore[var-annotated]
        self.graphs: dict[int, Graph] = {}
        self.nodes: dict[int, Any] = {}
        self.patches: list[int] = []
        self.replays = 0
        self.device = 0
        self.patch_codes: list[int] = []
        self.captures: dict[int, list[Any] | None] = {}  # nodes by stream, while it is being captured
        self.blas_stream, self.blas_room = 0, (0, 0)
        self.blas_codes: list[int] = []
        self.capture_codes: list[int] = []
        for name, kinds in SIGNATURES.items():
            setattr(self, name, _function(*kinds)(getattr(self, "_" + name)))

    def _cuLaunchKernel(self, kernel: int, *rest: Any) -> int:
        *sizes, stream, parameters, extra = rest
        assert extra is None
        self.seen.append((kernel, tuple(sizes), stream, self._words(kernel, parameters)))
        return self.codes.pop(0) if self.codes else 0

    def _words(self, kernel: int, parameters: int) -> list[int]:
        pointers = (ctypes.c_void_p * self.counts[kernel]).from_address(parameters) if self.counts[kernel] else ()
        return [ctypes.c_uint64.from_address(p).value for p in pointers]

    def _cuMemsetD8Async(self, address: int, value: int, nbytes: int, stream: int) -> int:
        assert value == 0
        self.seen.append(("clear", address, nbytes, stream))
        return 0

    def _cuCtxGetDevice(self, device: int) -> int:
        ctypes.c_int.from_address(device).value = self.device
        return 0

    def _cuCtxGetCurrent(self, context: int) -> int:
        N.from_address(context).value = 0xC0
        return 0

    def _cuGraphCreate(self, graph: int, flags: int) -> int:
        self._put(graph, Graph())
        return 0

    def _put(self, where: int, graph: Graph) -> None:
        N.from_address(where).value = 0x100 + len(self.graphs)
        self.graphs[0x100 + len(self.graphs)] = graph

    def _add(self, node: int, graph: int, after: int, count: int, value: Any) -> int:
        made = self.graphs[graph]
        assert count == int(bool(made.nodes)), "a chain"
        if made.nodes:
            assert N.from_address(after).value == made.nodes[-1]
        handle = 0x9000 + len(self.nodes)
        self.nodes[handle] = value
        made.nodes.append(handle)
        N.from_address(node).value = handle
        return 0

    def _kernel_node(self, parameters: int) -> tuple[Any, ...]:
        kernel = N.from_address(parameters).value
        sizes = tuple((ctypes.c_uint * 7).from_address(parameters + 8))
        return kernel, sizes, self._words(kernel, N.from_address(parameters + 40).value)

    @staticmethod
    def _clear_node(parameters: int) -> tuple[Any, ...]:
        address, pitch = (N * 2).from_address(parameters)
        value, size = (U * 2).from_address(parameters + 16)
        width, height = (N * 2).from_address(parameters + 24)
        assert (pitch, value, size, height) == (0, 0, 1, 1)
        return "clear", address, width

    def _cuGraphAddKernelNode(self, node: int, graph: int, after: int, count: int, parameters: int) -> int:
        return self._add(node, graph, after, count, self._kernel_node(parameters))

    def _cuGraphAddMemsetNode(
        self, node: int, graph: int, after: int, count: int, parameters: int, *context: int
    ) -> int:
        assert context == (0xC0,)
        return self._add(node, graph, after, count, self._clear_node(parameters))

    def _cuGraphInstantiateWithFlags(self, made: int, graph: int, flags: int) -> int:
        assert flags == 0
        self._put(made, Graph(list(self.graphs[graph].nodes), template=self.graphs[graph]))
        return 0

    def _cuGraphDestroy(self, graph: int) -> int:
        self.graphs[graph].dead = True
        return 0

    _cuGraphExecDestroy = _cuGraphDestroy

    def _cuGraphLaunch(self, graph: int, stream: int) -> int:
        self.replays += 1
        assert not self.graphs[graph].dead
        for node in self.graphs[graph].nodes:
            name, *rest = self.nodes[node]
            if name == "child":
                self.seen += [(*product[:1], stream or 0, *product[2:]) for product in rest[0]]
            else:
                self.seen.append(("clear", *rest, stream) if name == "clear" else (name, rest[0], stream, rest[1]))
        return 0

    def _cuStreamCreate(self, stream: int, flags: int) -> int:
        assert flags == 1
        N.from_address(stream).value = 0x5000 + len(self.captures)
        self.captures[0x5000 + len(self.captures)] = None
        return 0

    def _cuStreamDestroy_v2(self, stream: int) -> int:
        assert self.captures[stream] is None
        return 0

    def _cuStreamBeginCapture_v2(self, stream: int, mode: int) -> int:
        assert (self.captures[stream], mode) == (None, 2)
        self.captures[stream] = []
        return 0

    def _cuStreamEndCapture(self, stream: int, graph: int) -> int:
        nodes, self.captures[stream] = self.captures[stream], None
        assert nodes is not None
        if self.capture_codes:
            return self.capture_codes.pop(0)
        self._put(graph, Graph(nodes))
        return 0

    def _cuGraphAddChildGraphNode(self, node: int, graph: int, after: int, count: int, child: int) -> int:
        return self._add(node, graph, after, count, ("child", list(self.graphs[child].nodes)))

    def _cublasSetStream_v2(self, handle: int, stream: int | None) -> int:
        assert handle == HANDLE
        self.blas_stream, self.blas_room = stream or 0, (0, 0)
        return 0

    def _cublasSetWorkspace_v2(self, handle: int, address: int, nbytes: int) -> int:
        assert handle == HANDLE
        self.blas_room = address, nbytes
        return 0

    def _cublasGemmEx(self, handle: int, *given: Any) -> int:
        flags_shape, (one, a, *first, b), rest = given[:5], given[5:10], given[10:]
        kind, line, zero, out, *last = rest
        assert (handle, self._float(one), self._float(zero)) == (HANDLE, 1.0, 0.0)
        return self._product((flags_shape, (a, *first), (b, kind, line), (out, *last)))

    def _cublasGemmStridedBatchedEx(self, handle: int, *given: Any) -> int:
        one, zero = given[5], given[14]
        assert (handle, self._float(one), self._float(zero)) == (HANDLE, 1.0, 0.0)
        return self._product((given[:5], given[6:10], given[10:14], given[15:]))

    @staticmethod
    def _float(address: int) -> float:
        return float(ctypes.c_float.from_address(address).value)

    def _product(self, asked: tuple[Any, ...]) -> int:
        """("product", stream, workspace, flags and shape, second, first, out and the rest)."""
        found = ("product", self.blas_stream, self.blas_room, *asked)
        capture = self.captures.get(self.blas_stream)
        (self.seen if capture is None else capture).append(found)
        return self.blas_codes.pop(0) if self.blas_codes else 0

    def _patching(self, graph: int, node: int) -> None:
        """Nodes are named by the handles that they have in the graph from which this one was instantiated."""
        made = self.graphs[graph]
        assert node in made.nodes
        assert made.template is not None
        assert not made.template.dead
        self.patches.append(node)

    def _cuGraphExecKernelNodeSetParams(self, graph: int, node: int, parameters: int) -> int:
        self._patching(graph, node)
        if self.patch_codes and (code := self.patch_codes.pop(0)):
            return code
        self.nodes[node] = self._kernel_node(parameters)
        return 0

    def _cuGraphExecMemsetNodeSetParams(self, graph: int, node: int, parameters: int, context: int) -> int:
        assert context == 0xC0
        self._patching(graph, node)
        self.nodes[node] = self._clear_node(parameters)
        return 0


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuLaunchKernel": (V, *[U] * 7, V, V, V),
    "cuMemsetD8Async": (N, ctypes.c_ubyte, SIZE, V),
    "cuCtxGetDevice": (V,),
    "cuCtxGetCurrent": (V,),
    "cuGraphCreate": (V, U),
    "cuGraphAddKernelNode": (V, V, V, SIZE, V),
    "cuGraphAddMemsetNode": (V, V, V, SIZE, V, V),
    "cuGraphInstantiateWithFlags": (V, V, N),
    "cuGraphDestroy": (V,),
    "cuGraphExecDestroy": (V,),
    "cuGraphLaunch": (V, V),
    "cuGraphExecKernelNodeSetParams": (V, V, V),
    "cuGraphExecMemsetNodeSetParams": (V, V, V, V),
    "cuGraphAddChildGraphNode": (V, V, V, SIZE, V),
    "cuStreamCreate": (V, U),
    "cuStreamDestroy_v2": (V,),
    "cuStreamBeginCapture_v2": (V, ctypes.c_int),
    "cuStreamEndCapture": (V, V),
    "cublasSetStream_v2": (V, V),
    "cublasSetWorkspace_v2": (V, V, SIZE),
    "cublasGemmEx": (V, *[I] * 5, V, V, I, I, V, I, I, V, V, *[I] * 4),
    "cublasGemmStridedBatchedEx": (V, *[I] * 5, V, V, I, I, L, V, I, I, L, V, V, I, I, L, *[I] * 3),
}
