# Every command of the project. Each one sets itself up on a fresh machine; CI calls the same ones.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo check test debugger browser lint docs bless confusion bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Run the failing sample, its diagnosis and its cure
	$(BIN)/ampdoctor demo

check: lint test ## Everything CI checks

# One thread: sums come out in one order, so golden outputs hold on any number of cores.
# Compiled once, as most tests start processes and some environments keep Python from compiling for itself.
test: $(READY) debugger browser ## Run the tests; ARGS="-k name" goes on to pytest
	$(BIN)/python -m compileall -q ampdoctor
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS)

lint: $(READY) ## Format check, lint, types, layers, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

docs: $(READY) ## Regenerate the rule catalogue, the schema and the generated parts of the README
	$(BIN)/python -m tools.docs

bless: $(READY) ## Accept the present outputs as the expected ones
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.bless

bench: $(READY) ## Measure what recording costs
	$(BIN)/python -m benchmarks.overhead

clean: ## Remove what builds and tools leave behind (not .venv, not recorded runs)
	rm -rf build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

# Attaching to a process is tested with a real debugger, where there is one or root can install it.
debugger:
	@command -v gdb >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y gdb; } >/dev/null || true

# The dashboard is tested in a real browser, with the characters of both its languages.
browser:
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y chromium fonts-noto-cjk; } >/dev/null || true

$(READY): pyproject.toml setup.py constraints.txt ampdoctor/_version.py $(wildcard ampdoctor/record/stats/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
