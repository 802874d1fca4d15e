"""Construct: the one layer between front ends and the graph.

In: a `Builder` and arguments as users give them (axes, keepdims, dtype=, keys, weak scalars). Out: nodes that
satisfy every invariant of `fuser.graph`: operands promoted by their row's rule, cast and broadcast by explicit
nodes, dims unified, guards recorded. The DSL, the tracer and the lowerings of composites all build through this
package, so an argument means the same thing in each of them.

    common       axes, dims, static values, descriptions for errors
    elementwise  scalar operators, casts, where
    reduction    reductions, mean/var/std, scans
    views        broadcasts, permutations, reshapes, flips
    joining      concat, stack, pad, tile, split: piecewise values
    keys         the parsing of `x[...]` keys; indexing, storing: reading and updating by them; gather: index arrays
    creation     constants, ranges, masks
    contraction  matmul, tensordot, einsum
    calculus     diff, clip, select, cross, trapezoid and other small compositions
    loop         loops inside a kernel; body: what one round is made of
    random       Philox bits and what is made of them
"""
