# Every target sets up what it needs in a private .venv, again only when pyproject.toml changes.
#   make demo      run fuser's main job on real data
#   make test      run the tests            SLOW=1 adds the slow ones, ARGS=... goes to pytest
#   make lint types wheel-check             the other checks; make ci runs them all, as .ci/run does
#   make bench     measure; needs the peers: .venv/bin/pip install -e '.[bench]'
#   make format    rewrite the sources as `make lint` wants them
# Another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
export PYTHON

.PHONY: help setup demo test kernels lint format types wheel-check ci bench clean

help:
	@sed -n 's/^#   //p' Makefile

.venv/runtime.stamp: pyproject.toml .ci/setup
	@.ci/setup runtime

.venv/dev.stamp: pyproject.toml .ci/setup
	@.ci/setup dev

setup: .venv/dev.stamp

demo: .venv/runtime.stamp
	@$(BIN)/fuserc demo

test: .venv/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(if $(SLOW),--slow) $(ARGS)

# Every kernel of the examples and the public workloads, by NVRTC for three architectures.
kernels: .venv/dev.stamp
	$(BIN)/python -m pytest -n $(JOBS) --slow tests/codegen/test_corpus.py

lint: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: .venv/dev.stamp
	.ci/types

wheel-check: .venv/dev.stamp
	.ci/wheel-check

ci:
	.ci/run

bench: .venv/dev.stamp
	$(BIN)/python -m benchmarks $(ARGS)

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
