"""Tests of the project itself: its layering, sizes, packaging and hygiene."""
