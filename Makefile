# The two commands that matter: `make run` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LOCKED := .ci/requirements.txt

WORKERS   ?= 4
CONTAINER ?= docker
VERSION    = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' webhook/__init__.py)
IMAGE      = fairgate/fairgate:$(VERSION)
PIN       := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --custom-compile-command 'make lock'

.DEFAULT_GOAL := help
.PHONY: KEEP help setup run demo browser built test test-rest test-all test-operators test-versions test-saving test-fast test-long chaos chaos-attack chaos-day lint format bench schema docs chart image image-check lock audit release-check clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with Fairgate and its development tools

$(STAMP): pyproject.toml webhook/__init__.py $(LOCKED)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Fairgate needs Python 3.11 or newer: make PYTHON=python3.12 setup")'
	@echo 'Installing Fairgate and its tools into $(VENV): about a minute, this once.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCKED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $(STAMP)

$(STAMP)-release: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group release
	@touch $@

$(STAMP)-saving: $(STAMP)
	$(PYTHON) -m venv $(VENV)-saving
	$(VENV)-saving/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(VENV)-saving/bin/python -m pip install --quiet --disable-pip-version-check --group saving
	@touch $@

run: setup ## serve the embedded world over HTTPS and show one decision
	@$(BIN)/python -m webhook tryout $(if $(PORT),--port $(PORT))

demo: setup ## three scenarios without and with Fairgate; KEEP=1: only a cluster with Fairgate; KEEP=0: end at once; PACE=seconds
	@$(if $(PACE),DEMO_PACE=$(PACE)) DEMO_KEEP=$(or $(KEEP),$(if $(filter KEEP,$(MAKECMDGOALS)),1)) $(BIN)/python -m tests.demo

KEEP: # make demo KEEP
	@:

browser: setup ## Chromium for the tests of the page, where it is missing
	@.ci/browser.sh $(BIN)/python

# With the usual priority; lint, which uses one core, runs beside it. Where it fails, pytest fails the tests that need it.
built: setup browser
	-@$(BIN)/python -m tests.control_plane.build >/dev/null

test: setup ## lint, types, layers, all without a control plane, and on a real one what README promises; WORKERS=2 for fewer at a time
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=line lint built
	$(BIN)/pytest -n $(WORKERS) -m 'not long and (promise or not cluster)' --limit-minutes 25 --limit-reruns 2

test-rest: setup ## on the real control plane, all that `make test` leaves out: scenarios, attacks, the chart, the commands of the docs
	-@$(BIN)/python -m tests.control_plane.build --rest >/dev/null
	$(BIN)/pytest -n $(WORKERS) -m 'cluster and not (promise or long or operators)' --limit-minutes 45 --limit-reruns 2

test-all: test test-rest ## both: before a pull request

test-operators: setup ## tests with real operators, cert-manager, Prometheus, Alertmanager; MINUTES=20 leaves out what is not built by then
	@$(BIN)/python -m tests.control_plane.build --operators $(if $(MINUTES),--minutes $(MINUTES)) >/dev/null; built=$$?; \
	$(BIN)/pytest -n $(WORKERS) -m 'operators and not (promise or long)' --limit-reruns 2 $(if $(MINUTES),--only-built) && exit $$built

test-versions: setup ## scenarios and attacks on other minors of Kubernetes; MINORS="1.30 1.36"; MINUTES=20 tests what is built
	@$(BIN)/python -m tests.ci.versions --workers $(WORKERS) $(if $(MINUTES),--minutes $(MINUTES)) $(MINORS)

test-saving: $(STAMP)-saving ## the training loops of docs/tasks/saving.md with PyTorch, Ray and Transformers, which it installs: 6 GB
	$(BIN)/pytest tests/saving/recipes_check.py

test-fast: setup ## the tests that need no control plane and little time each: about a minute
	FUZZ_TIMES=$(or $(FUZZ_TIMES),0.3) $(BIN)/pytest -n 3 --ignore=tests/scenarios -m 'not cluster and not long and not slow'

test-long: setup browser ## the long forms, on real clocks, and a longer search by properties: before a release
	$(BIN)/pytest -m long
	FUZZ_TIMES=20 $(BIN)/pytest -n 2 -m 'hypothesis and not cluster'

chaos: setup ## minutes of trouble for three replicas: kills, pauses, cuts; CHAOS_SECONDS=600 for ten
	CHAOS_SECONDS=$(or $(CHAOS_SECONDS),180) $(BIN)/pytest tests/chaos

chaos-attack: setup ## a hostile tenant among honest ones, for five minutes; CHAOS_SECONDS=60, CHAOS_SEED=… for the same again
	CHAOS_SECONDS=$(or $(CHAOS_SECONDS),300) $(BIN)/pytest tests/chaos/test_attacker.py --log-cli-level=INFO

chaos-day: setup ## a day of failures, from killed replicas to a restored etcd, as a table; CHAOS_DAY=etcd for one
	CHAOS_DAY='$(or $(CHAOS_DAY),all)' $(BIN)/pytest tests/chaos/day

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
	$(BIN)/python benchmarks/scrape.py
	$(BIN)/python benchmarks/review.py
	$(BIN)/python benchmarks/watch.py
	$(BIN)/python benchmarks/ledger_paths.py
	$(BIN)/python benchmarks/reclaim_plan.py
	$(BIN)/python benchmarks/queue_order.py
	$(BIN)/python benchmarks/reclaim.py
	$(BIN)/python benchmarks/affinity.py

schema: setup ## regenerate policies/schema.json
	$(BIN)/fairgate policy schema > policies/schema.json

docs: setup ## regenerate docs/reference/cli.md, the schemas beside it, docs/reference/codes.md, docs/reference/metrics.md and the tables of policy fields
	$(BIN)/python -m tests.docs.command_pages docs/reference
	$(BIN)/python -m tests.docs.metrics_page docs/reference
	$(BIN)/python -m tests.docs.page_tables

image: ## build the container image; CONTAINER=podman, BASE=another base, IMAGE_FLAGS=…
	$(CONTAINER) build $(if $(BASE),--build-arg BASE=$(BASE)) --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$$(git rev-parse HEAD) $(IMAGE_FLAGS) --tag $(IMAGE) .

image-check: setup ## run the image with a read-only root and no rights; CONTAINER=podman, RUN_FLAGS=…
	CONTAINER="$(CONTAINER)" IMAGE=$(IMAGE) RUN_FLAGS="$(RUN_FLAGS)" $(BIN)/pytest tests/ci/image_check.py

lock: $(STAMP)-release ## pin the newest dependencies that pyproject.toml allows, by hash
	$(BIN)/uv pip compile $(PIN) pyproject.toml --output-file $(LOCKED)
	$(BIN)/uv pip compile $(PIN) --group build --output-file .ci/requirements-build.txt

audit: $(STAMP)-release ## known vulnerabilities of what is pinned
	$(BIN)/python -m tests.ci.audit

release-check: $(STAMP)-release ## is this commit ready to be released: version, packages, a clean install
	$(BIN)/python -m tests.ci.release

chart: setup ## regenerate what follows from the code in charts/fairgate
	$(BIN)/python -m tests.charts.generated

clean: ## remove what setup and the tools made
	rm -rf $(VENV) $(VENV)-saving .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build .run
