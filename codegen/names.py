"""Names in kernels: what C and CUDA allow, near what the user wrote.

In: a hint, such as a user's variable. Out: an identifier. Its own file because the words of a language are no part of
how kernels are written.
"""

from __future__ import annotations

import re

# Words that C and CUDA keep, and names that the printer's prelude may define start with `fuser_`.
_WORDS = """alignas alignof asm auto bool break case catch char class const constexpr continue decltype default
    delete do double else enum explicit export extern false float for friend goto half if inline int long mutable
    namespace new noexcept nullptr operator or and not xor private protected public register return short signed
    sizeof static struct switch template this thread_local throw true try typedef typename union unsigned using
    virtual void volatile wchar_t while threadIdx blockIdx blockDim gridDim warpSize main uint ushort ulong int2
    int4 float2 float4 double2 min max abs exp log pow sqrt sin cos tan erf clock printf"""
RESERVED = frozenset(_WORDS.split())


def identifier(hint: str) -> str:
    """A C identifier near `hint`: other characters become `_`, reserved words get a trailing `_`."""
    name = re.sub(r"\W+", "_", hint, flags=re.ASCII).strip("_") or "t"
    if name[0].isdigit():
        name = f"v{name}"
    return f"{name}_" if name in RESERVED or name.startswith("fuser_") else name
