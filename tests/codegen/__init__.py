"""Tests of code generation: the kernel language, its consumers and the schedules."""
