# A new machine needs only Python >= 3.10 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: help install demo bench test lint types unit sanitize soak fuzz mutants format clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

install: $(VENV)/.installed  ## Create .venv with the package.

demo: install  ## Train on the built-in data set and write runs/demo/report.html.
	$(BIN)/psco demo --out runs/demo

bench: install  ## Measure speed on this machine; ARGS=--quick for a trial run, ARGS=--json for JSON.
	@$(BIN)/python -m benchmarks.speed $(ARGS)

test: lint types unit  ## Run lint, type checks and tests, as CI does.

lint: $(VENV)/.installed-dev  ## Check style and spelling.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(VENV)/.installed-dev  ## Check types.
	$(BIN)/mypy

unit: $(VENV)/.installed-dev  ## Run the tests.
	$(BIN)/python -m pytest

# The sanitizer runtime must be loaded first, with libstdc++ for C++ exceptions. Leaks are not
# checked, because Python itself leaks.
SANITIZERS := -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
sanitize: $(VENV)/.installed-dev  ## Test the C kernels with address and undefined-behaviour sanitizers.
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	CC=gcc PSCO_KERNELS='$(SANITIZERS)' \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	$(BIN)/python -m pytest -n 0 -k 'not narrower' \
	    tests/ops/test_native.py tests/ops/test_conv_block.py tests/ops/test_native_safety.py

soak: $(VENV)/.installed-dev  ## Train for 30 minutes while killing the process at random; MINUTES=5 for less.
	$(BIN)/python tests/soak.py --minutes $(or $(MINUTES),30)

fuzz: $(VENV)/.installed-dev  ## Read 100,000 damaged files; INPUTS=2000 for less.
	$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),100000)

mutants: $(VENV)/.installed-dev  ## Make deliberate mistakes in a copy; print those that no test notices.
	$(BIN)/python -m tests.mutants $(ARGS)

format: $(VENV)/.installed-dev  ## Format the code.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove .venv and all caches; keep runs/.
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/.made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "psco needs Python 3.10 or newer; try make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[photos,app]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[dev,photos,app,onnx]'
	touch $(VENV)/.installed $@
