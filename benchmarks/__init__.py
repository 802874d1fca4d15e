"""Measurements of fuser beside what users would pick instead. `python -m benchmarks --help` says how; a timing is never a test."""
