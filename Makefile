# The two commands that matter: `make run` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast chaos lint format bench schema docs clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with Fairgate and its development tools

$(STAMP): pyproject.toml webhook/__init__.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairgate needs Python 3.11 or newer: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $(STAMP)

run: setup ## serve the embedded world over HTTPS and show one decision
	@$(BIN)/python -m webhook tryout $(if $(PORT),--port $(PORT))

test: lint ## everything CI runs: lint, types, layers, unit, HTTP, real control plane
	$(BIN)/pytest

test-fast: setup ## the tests that need no control plane: about a minute
	$(BIN)/pytest -m 'not cluster'

chaos: setup ## minutes of trouble for three replicas: kills, pauses, cuts; CHAOS_SECONDS=600 for ten
	CHAOS_SECONDS=$(or $(CHAOS_SECONDS),180) $(BIN)/pytest tests/chaos

lint: setup ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite the code in house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## the performance claims of docs/benchmarks.md, on this machine
	$(BIN)/python benchmarks/decide.py
	$(BIN)/python benchmarks/placement.py
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/review.py
	$(BIN)/python benchmarks/watch.py
	$(BIN)/python benchmarks/ledger_paths.py
	$(BIN)/python benchmarks/reclaim_plan.py
	$(BIN)/python benchmarks/reclaim.py
	$(BIN)/python benchmarks/affinity.py

schema: setup ## regenerate policies/schema.json
	$(BIN)/fairgate policy schema > policies/schema.json

docs: setup ## regenerate docs/cli.md and the schemas beside it
	$(BIN)/python -m webhook.cli.reference docs

clean: ## remove what setup and the tools made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build .run
