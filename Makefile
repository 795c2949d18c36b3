# The front door. `make serve` and `make test` are all a newcomer needs.
PYTHON ?= python3
PORT ?= 8080
N ?= 1000
SEED ?= 1
KILLS ?= 50
FIT ?=
BIN := .venv/bin
LOCK := requirements.lock
UV_FLAGS := --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml

.PHONY: help setup serve test check lint types unit cluster oracle conformance rolling faults bench openapi docs lock clean

help: ## Say what can be made.
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: .venv/.ready ## Make .venv with the package and its tools, as the lock file says.

.venv/.ready: $(LOCK) pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or later is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

serve: setup ## Serve the example snapshot at http://127.0.0.1:8080 (PORT= for another port).
	$(BIN)/gpuclass-catalog serve --snapshot manifests/examples/snapshot.yaml --insecure-port $(PORT)

test: setup ## Lint, type-check, and run every test, the real cluster included.
	$(MAKE) --no-print-directory lint types
	$(BIN)/python -m pytest

check: test

lint: setup ## Formatting, lint, and the arrows between the rooms.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache

types: setup ## Static types, strictly.
	$(BIN)/mypy

unit: setup ## Only the tests that need no cluster.
	$(BIN)/python -m pytest tests/unit tests/http tests/golden

cluster: setup ## Start etcd, kube-apiserver and kube-scheduler with the catalog installed; Ctrl-C stops all.
	$(BIN)/python -m tests.cluster

oracle: setup ## Let the real kube-scheduler judge N random clusters (N=1000, SEED=1; FIT=1: cpu, memory and slots too).
	$(BIN)/python -m tests.cluster.oracle --clusters $(N) --seed $(SEED) $(if $(FIT),--fit)

conformance: setup ## Run every real client against two replicas: kubectl, client-go, Terraform, Headlamp's requests, …
	$(BIN)/python -m tests.conformance

rolling: setup ## Restart both replicas one after the other under 10,000 requests and 200 watches.
	$(BIN)/python -m tests.conformance.rolling

faults: setup ## Kill, freeze, cut and flood while readers go on (KILLS=50, SEED=1): no figure wrong, none stale.
	$(BIN)/python -m tests.faults --kills $(KILLS) --seed $(SEED)

bench: setup ## Compare with sample-apiserver, the CRD and bare aiohttp (ROWS=text for some of the rows).
	$(BIN)/python -m tests.bench --rows "$(ROWS)" --write

openapi: setup ## Write the OpenAPI documents anew from apiserver/catalog/schema.py.
	$(BIN)/python -m openapi.generate

docs: setup ## Write docs/reference anew from the OpenAPI document and the command line.
	$(BIN)/python -m docs.reference

lock: ## Write the lock files anew from pyproject.toml (uv must be installed).
	uv pip compile $(UV_FLAGS) --group dev -o $(LOCK)
	uv pip compile $(UV_FLAGS) -c $(LOCK) -o requirements-run.lock

clean: ## Remove what setup made.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist
