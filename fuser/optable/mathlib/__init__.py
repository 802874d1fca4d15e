"""Elementary functions written in row arithmetic: `expand` of the rows whose target has no such function for vectors.

In: handles (`S`) of f32 or f64. Out: handles. A function is the same few dozen operators for every element, with
selects and no branches, so it runs in vector lanes and gives an element one value whatever its position.
"""
