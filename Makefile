# Everything a newcomer needs: `make demo`, then `make test`. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_DB := build/demo.db
SGLANG_CPU := .sglang-cpu
# Other load generators, each in an environment of its own, as they were tested with.
guidellm_VERSION := 0.8.1
aiperf_VERSION := 0.13.0

.PHONY: install demo test test-fast test-speed test-sglang test-sglang-long sglang-cpu check bench bench-clients lock clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml requirements-dev.lock
	$(PYTHON) -c 'import sys; sys.exit("tuner needs Python 3.11 or newer: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	touch $@

demo: install  ## The main job on the simulated Kimi server, afresh, in a few minutes
	mkdir -p build
	rm -rf $(DEMO_DB) $(DEMO_DB)-wal $(DEMO_DB)-shm build/tuner-logs
	$(BIN)/tuner sweep --study kimi-demo --storage sqlite:///$(DEMO_DB)

test: install  ## All tests but those that need the real SGLang; many wait, so 3 at a time on 2 cores
	$(BIN)/pytest -n 3 --dist worksteal -m "not sglang and not sglang_long and not alone"

test-fast: install  ## Tests that start no server, in under a minute
	$(BIN)/pytest -n 3 -m "not slow and not sglang and not sglang_long and not alone"

test-speed: install  ## Figures of speed against real clocks: on a quiet machine, by themselves
	$(BIN)/pytest -m alone -s

$(SGLANG_CPU)/ready: install runners/sglang_cpu/*
	$(BIN)/python -m runners.sglang_cpu $(SGLANG_CPU)
	touch $@

sglang-cpu: $(SGLANG_CPU)/ready  ## The real SGLang on this CPU, with tiny models (2.8 GB)

test-sglang: sglang-cpu  ## The real SGLang on a CPU
	TUNER_SGLANG_PYTHON=$(CURDIR)/$(SGLANG_CPU)/venv/bin/python $(BIN)/pytest -n 2 --dist loadgroup --no-loadscope-reorder --durations 20 -m "sglang and not sglang_long" tests

test-sglang-long: sglang-cpu build/aiperf/bin/aiperf  ## The same, the long form, and others' clients
	TUNER_SGLANG_PYTHON=$(CURDIR)/$(SGLANG_CPU)/venv/bin/python $(BIN)/pytest -m "sglang or sglang_long" tests

check: install  ## Lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install  ## Benchmarks, side by side with what one would use instead
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/store.py

bench-clients: build/guidellm/bin/guidellm build/aiperf/bin/aiperf  ## Other load generators (7 GB)

build/guidellm/bin/guidellm build/aiperf/bin/aiperf:
	$(PYTHON) -m venv build/$(notdir $@)
	build/$(notdir $@)/bin/pip install --quiet $(notdir $@)==$($(notdir $@)_VERSION)

lock:  ## Pins what `make install` installs, from the ranges in pyproject.toml
	rm -rf build/lock-venv
	$(PYTHON) -m venv build/lock-venv
	build/lock-venv/bin/pip install --quiet --editable '.[dev]'
	build/lock-venv/bin/pip freeze --exclude-editable > requirements-dev.lock
	rm -rf build/lock-venv

clean:
	rm -rf $(VENV) $(SGLANG_CPU) build dist .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
