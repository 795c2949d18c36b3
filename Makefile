# The front door. `make serve` and `make test` are all a newcomer needs.
PYTHON ?= python3
PORT ?= 8080
N ?= 1000
SEED ?= 1
KILLS ?= 50
FIT ?=
CATALOG ?= yes
WORKERS ?= 2
BIN := .venv/bin
LOCK := requirements.lock
UV_FLAGS := --quiet --no-strip-extras --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= gpuclass-catalog:$(VERSION)
BASE_IMAGE ?= $(shell sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)
IMAGE_FLAGS ?=

.PHONY: help setup serve test check lint types unit cluster oracle conformance rolling faults bench openapi docs image pictures lock clean

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

test: setup ## Lint, type-check, and run every test, the real cluster included (WORKERS=2 test processes).
	$(MAKE) --no-print-directory lint types
	$(BIN)/python -m pytest -m 'not alone and not slow' --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder
	$(BIN)/python -m pytest -m alone

check: test

lint: setup ## Formatting, lint, the arrows between the rooms, and the Dockerfile.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/hadolint Dockerfile

types: setup ## Static types, strictly.
	$(BIN)/mypy

unit: setup ## Only the tests that need no cluster.
	$(BIN)/python -m pytest tests/unit tests/http tests/golden

cluster: setup ## Start a control plane with the catalog installed (CATALOG=no: to install it yourself); Ctrl-C stops all.
	$(BIN)/python -m tests.cluster --catalog=$(CATALOG)

oracle: setup ## Let the real kube-scheduler judge N random clusters (N=1000, SEED=1; FIT=1: cpu, memory and slots too).
	$(BIN)/python -m tests.cluster.oracle --clusters $(N) --seed $(SEED) $(if $(FIT),--fit)

conformance: setup ## Run every real client against two replicas: kubectl, client-go, Terraform, Headlamp's requests, …
	$(BIN)/python -m tests.conformance
	$(BIN)/python -m pytest -m slow

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

image: ## Build the image with buildah or docker (IMAGE=name:tag, BASE_IMAGE= for another base).
	@if command -v buildah >/dev/null; then builder=buildah; \
	elif docker info >/dev/null 2>&1; then builder=docker; \
	else echo "make image: neither buildah nor a running docker is here: apt-get install buildah, or start docker" >&2; exit 1; fi; \
	set -x; $$builder build --tag $(IMAGE) --build-arg BASE_IMAGE=$(BASE_IMAGE) \
	    --label org.opencontainers.image.version=$(VERSION) --label org.opencontainers.image.base.name=$(BASE_IMAGE) \
	    --label org.opencontainers.image.revision=$$(git rev-parse HEAD 2>/dev/null || echo unknown) $(IMAGE_FLAGS) .

pictures: setup ## Draw the page and the dashboard in docs/ anew, in a headless Chromium, from the example.
	$(BIN)/python -m tests.page.pictures
	$(BIN)/python -m tests.monitoring.pictures

lock: ## Write the lock files anew from pyproject.toml (uv must be installed).
	uv pip compile $(UV_FLAGS) pyproject.toml --extra tracing --group dev -o $(LOCK)
	uv pip compile $(UV_FLAGS) pyproject.toml --extra tracing -c $(LOCK) -o requirements-run.lock
	uv pip compile $(UV_FLAGS) --group build -c $(LOCK) -o requirements-build.lock

clean: ## Remove what setup made.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage dist
