"""What to write instead of a call that has no operator.

In: the qualified name of a NumPy, SciPy or Python function. Out: one short phrase. Its own file because it is
a table of advice that grows with what users try.
"""

from __future__ import annotations

from fuser.optable import table

_SHAPE = "the result's shape depends on data"
# What has a near way to be written; every other name gets the nearest operator by spelling.
WAYS: dict[str, str] = {
    "sort": "nothing near; call it outside", "argsort": "nothing near; call it outside",
    "partition": "nothing near; call it outside", "argpartition": "nothing near; call it outside",
    "lexsort": "nothing near; call it outside", "unique": f"{_SHAPE}; call it outside",
    "median": "needs sorting; call it outside", "nanmedian": "needs sorting; call it outside",
    "percentile": "needs sorting; call it outside", "quantile": "needs sorting; call it outside",
    "nonzero": f"{_SHAPE}; write np.where(c, a, b)", "argwhere": f"{_SHAPE}; write np.where(c, a, b)",
    "flatnonzero": f"{_SHAPE}; write np.where(c, a, b)", "extract": f"{_SHAPE}; write np.where(c, a, 0)",
    "compress": f"{_SHAPE}; write np.where(c, a, 0)", "bincount": "a histogram; call it outside",
    "histogram": "a histogram; call it outside", "digitize": "write (x[..., None] >= bins).sum(-1)",
    "searchsorted": "write (x[..., None] > a).sum(-1)", "isin": "write (x[..., None] == values).any(-1)",
    "in1d": "write (x[..., None] == values).any(-1)", "convolve": "write it as a sum of shifted slices",
    "correlate": "write it as a sum of shifted slices", "vectorize": "call the function on the whole array",
    "apply_along_axis": "call the function on the whole array", "fromiter": "build a list, then np.stack",
    "linalg.norm": "write np.sqrt((x * x).sum(axis))", "linalg.inv": "nothing near; call it outside",
    "linalg.solve": "nothing near; call it outside", "linalg.det": "nothing near; call it outside",
    "linalg.svd": "nothing near; call it outside", "linalg.eigh": "nothing near; call it outside",
    "linalg.qr": "nothing near; call it outside", "linalg.cholesky": "nothing near; call it outside",
    "ndarray.tobytes": "convert the result instead", "ndarray.flat": "write x.ravel()",
    "ndarray.resize": "write np.resize or np.pad", "ndarray.setflags": "leave it out",
    "ndarray.nonzero": f"{_SHAPE}; write np.where(c, a, b)", "ndarray.sort": "nothing near; call it outside",
    "ndarray.strides": "a traced array has no layout", "ndarray.flags": "a traced array has no layout",
    "ndarray.ctypes": "a traced array has no memory yet", "ndarray.data": "a traced array has no memory yet",
    "ndarray.base": "a traced array has no memory yet", "put": "store through slices or a mask: x[mask] = v",
    "put_along_axis": "store through slices or a mask: x[mask] = v", "place": "write x[mask] = v with a scalar v",
    "add.at": "repeated indices would race; call it outside", "frombuffer": "call it outside",
    "save": "save the result outside", "fft": "nothing near; call it outside", "ndarray.put": "write x[mask] = v",
}  # fmt: skip
_LIBRARY = "a library call that has no operator; call it outside"
_SORTS = "needs sorting; call it outside"
_SETS = f"{_SHAPE}; call it outside"
_STORES = "store through slices, integers or a mask: x[mask] = v"
_FILES = "reads or writes a file; call it outside"
for _reason, _names in {
    _LIBRARY: "linalg.inv linalg.solve linalg.det linalg.svd linalg.eigh linalg.qr linalg.cholesky linalg.cond "
    "linalg.eig linalg.eigvals linalg.eigvalsh linalg.lstsq linalg.matrix_rank linalg.pinv linalg.slogdet "
    "linalg.svdvals linalg.tensorinv linalg.tensorsolve fft roots polyfit poly",
    _SORTS: "nanpercentile nanquantile topk kthvalue",
    "nothing near; call it outside": "sort_complex ndarray.argsort ndarray.partition ndarray.argpartition",
    _SETS: "unique unique_all unique_counts unique_inverse unique_values union1d intersect1d setdiff1d setxor1d "
    "trim_zeros masked_select",
    _STORES: "put put_along_axis index_put index_add scatter scatter_add",
    _FILES: "load save savetxt savez savez_compressed loadtxt genfromtxt fromfile fromstring",
    "a histogram; call it outside": "histogram histogram2d histogramdd histogram_bin_edges histc",
    "of polynomials, not arrays; call it outside": "polyadd polysub polymul polydiv polyder polyint",
    "write polyval along one axis, then the other": "polynomial.polynomial.polygrid2d polynomial.polynomial.polyval2d",
    "of dates; call it outside": "busday_count busday_offset is_busday datetime_as_string",
    "packs bits; write shifts and masks": "packbits unpackbits",
    "write // and % with the shape": "unravel_index ravel_multi_index",
    "write np.tri or np.arange comparisons as a mask": "diag_indices_from tril_indices_from triu_indices_from",
    "build a list, then np.stack, or write the formula over np.indices": "fromiter fromfunction",
    "memory order is the caller's; leave it out": "asfortranarray",
    "write it as a sum of shifted slices, or call it outside": "conv1d conv2d conv3d max_pool2d avg_pool2d interpolate",
    "write it with matmul and softmax": "scaled_dot_product_attention",
}.items():
    WAYS.update(dict.fromkeys(_names.split(), _reason))
SAME_SHAPE = frozenset({"sort", "partition", "fft.fft", "fft.ifft", "linalg.inv", "linalg.cholesky", "unwrap"})
NUMPY_RANDOM = "write fuser.ops.uniform(key, shape), fuser.ops.normal(key, shape)"


def unsupported(name: str) -> str:
    """The phrase for a function: `linalg.norm`, `ndarray.sort`, `add.at`."""
    plain = name.removeprefix("ndarray.")
    for key in (name, plain, plain.partition(".")[0]):
        if key in WAYS:
            return WAYS[key]
    import difflib

    near = difflib.get_close_matches(plain.rpartition(".")[2], table().names("numpy"), 1, 0.87)
    return f"nearest: np.{near[0]}" if near else "nothing near; call it outside"


def unsupported_torch(name: str) -> str:
    """The phrase for a torch function or method."""
    plain = name.rstrip("_")
    if plain in WAYS:
        return WAYS[plain]
    import difflib

    near = difflib.get_close_matches(plain, table().names("torch"), 1, 0.8)
    return f"nearest: torch.{near[0]}" if near else "nothing near; call it outside"
