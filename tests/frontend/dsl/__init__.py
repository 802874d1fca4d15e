"""Tests of the `.fuse` language: programs and their graphs, errors word for word, meaning against NumPy, limits."""
