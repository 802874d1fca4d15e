"""Tests of the Python tracer."""
