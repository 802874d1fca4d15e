"""What to write instead of a call that has no operator.

In: the qualified name of a NumPy, SciPy or Python function. Out: one short phrase. Its own file because it is
a table of advice that grows with what users try.
"""

from __future__ import annotations

from fuser.optable import table

_SHAPE = "the result's shape depends on data"
# What has a near way to be written; every other name gets the nearest operator by spelling.
_NAMES: dict[str, str] = {
    "nothing near; call it outside": "sort argsort partition argpartition lexsort ndarray.sort sort_complex "
    "ndarray.argsort ndarray.partition ndarray.argpartition",
    f"{_SHAPE}; call it outside": "unique unique_all unique_counts unique_inverse unique_values union1d intersect1d "
    "setdiff1d setxor1d trim_zeros masked_select",
    "needs sorting; call it outside": "median nanmedian percentile quantile nanpercentile nanquantile topk kthvalue",
    f"{_SHAPE}; write np.where(c, a, b)": "nonzero argwhere flatnonzero ndarray.nonzero",
    f"{_SHAPE}; write np.where(c, a, 0)": "extract compress",
    "a histogram; call it outside": "bincount histogram histogram2d histogramdd histogram_bin_edges histc",
    "write (x[..., None] >= bins).sum(-1)": "digitize",
    "write (x[..., None] > a).sum(-1)": "searchsorted",
    "write (x[..., None] == values).any(-1)": "isin in1d",
    "write it as a sum of shifted slices": "convolve correlate",
    "call the function on the whole array": "vectorize apply_along_axis",
    "build a list, then np.stack, or write the formula over np.indices": "fromiter fromfunction",
    "write np.sqrt((x * x).sum(axis))": "linalg.norm",
    "a library call that has no operator; call it outside": "linalg.inv linalg.solve linalg.det linalg.svd "
    "linalg.eigh linalg.qr linalg.cholesky fft linalg.cond linalg.eig linalg.eigvals linalg.eigvalsh linalg.lstsq "
    "linalg.matrix_rank linalg.pinv linalg.slogdet linalg.svdvals linalg.tensorinv linalg.tensorsolve roots polyfit "
    "poly",
    "convert the result instead": "ndarray.tobytes",
    "write x.ravel()": "ndarray.flat",
    "write np.resize or np.pad": "ndarray.resize",
    "leave it out": "ndarray.setflags",
    "a traced array has no layout": "ndarray.strides ndarray.flags",
    "a traced array has no memory yet": "ndarray.ctypes ndarray.data ndarray.base",
    "store through slices, integers or a mask: x[mask] = v": "put put_along_axis index_put index_add scatter "
    "scatter_add",
    "write x[mask] = v with a scalar v": "place",
    "repeated indices would race; call it outside": "add.at",
    "call it outside": "frombuffer",
    "reads or writes a file; call it outside": "save load savetxt savez savez_compressed loadtxt genfromtxt "
    "fromfile fromstring",
    "write x[mask] = v": "ndarray.put",
    "of polynomials, not arrays; call it outside": "polyadd polysub polymul polydiv polyder polyint",
    "write polyval along one axis, then the other": "polynomial.polynomial.polygrid2d "
    "polynomial.polynomial.polyval2d",
    "of dates; call it outside": "busday_count busday_offset is_busday datetime_as_string",
    "packs bits; write shifts and masks": "packbits unpackbits",
    "write // and % with the shape": "unravel_index ravel_multi_index",
    "write np.tri or np.arange comparisons as a mask": "diag_indices_from tril_indices_from triu_indices_from",
    "memory order is the caller's; leave it out": "asfortranarray",
    "write it as a sum of shifted slices, or call it outside": "conv1d conv2d conv3d max_pool2d avg_pool2d "
    "interpolate",
    "write it with matmul and softmax": "scaled_dot_product_attention",
}  # fmt: skip
WAYS = {name: way for way, names in _NAMES.items() for name in names.split()}
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
