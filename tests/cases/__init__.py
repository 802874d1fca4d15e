"""Public fault kinds, as tests."""
