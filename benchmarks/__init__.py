"""Measurements of fuser beside what users would pick instead; a timing is never a test.

`python -m benchmarks --help` says how to run them.
"""
