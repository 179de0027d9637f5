# One command does all its set-up: `make test`, `make demo`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Tests start many processes: what the first one compiles, the others read.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup quick affected test archived compiled-first compiled-second suites suites-cluster shards tpcds check laws format demo serve services random-queries benchmark benchmark-peers benchmark-nexmark soak chaos simulate clean

# What people need first; the others are described where they stand, and in CONTRIBUTING.md.
help:
	@echo 'make setup      install what is needed into $(VENV), once; every other target does so too'
	@echo 'make demo       a year of flights through six views'
	@echo 'make serve      a clickstream behind a server, with its console in the browser'
	@echo 'make example-orders   an example of a page; docs/README.md lists them'
	@echo 'make check      lint, types, import contracts'
	@echo 'make quick      what needs no JVM: make check, laws, epochs and crashes in plain Python'
	@echo 'make affected   the tests that a change affects, by the imports (BASE=HEAD~3)'
	@echo 'make test       all tests in their short form, about ten minutes on two cores'
	@echo 'make suites     the proofs that take hours, or a part of them (SHARD=3/12)'
	@echo 'make benchmark  times and counters, beside what stood before (OPTIONS="--only steady")'

setup: $(READY)

# A pip of before 26 takes twice as long over the index, and one pip uses half a core: each of two
# installs every other package. Modules are compiled when they are imported.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "headrace needs Python 3.11 or newer; set PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the locked dependencies into $(VENV) (once)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=26'
	@awk '/^[^ #]/ { part = !part } { print > ("$(VENV)/" part ".lock") }' requirements.lock
	@printf '%s\n' '--require-hashes -r $(VENV)/0.lock' '--require-hashes -r $(VENV)/1.lock' '--editable .' \
	  | xargs -P 3 -L 1 $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --no-deps
	@touch $(READY)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# All that needs no JVM: lint, types, contracts, laws, epochs and crashes by plain Python.
quick: check
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not spark and not long"

# The tests that a change affects by the import graph. For example: make affected BASE=HEAD~3
affected: check
	$(BIN)/python tests/affected.py $(BASE) | xargs --no-run-if-empty $(BIN)/python -m pytest

laws: setup
	$(BIN)/python -m pytest tests/zset tests/spine tests/operators

test: setup
	@$(MAKE) --no-print-directory --jobs 2 check archived compiled-first compiled-second
	@tests/in_memory $(BIN)/python -m pytest -n 2 --dist worksteal

# While mypy has the other core, a JVM archives its classes, which all others map. Then modules and
# rewritten assertions are compiled, each half of them once, and not by each worker.
archived: setup
	@$(BIN)/python -m pytest tests/views/test_distinct.py > /dev/null || true

compiled-first: setup
	@$(BIN)/python -m pytest --collect-only tests/[a-h]*/ > /dev/null || true

compiled-second: setup
	@$(BIN)/python -m pytest --collect-only tests/[i-z]*/ tests/test_*.py > /dev/null || true

# The proofs that take hours: every test of `make test` at its full length, with more kills and
# random queries, and the tests marked long: published workloads over long histories. One part of
# them, of at most a quarter of an hour: make suites SHARD=3/12
suites: setup
	HEADRACE_THOROUGH=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "long or not long" $(if $(SHARD),--shard $(SHARD)) $(ARGS)

# Nexmark, TPC-H and a medallion on a standalone cluster of Spark whose two workers share no disk with
# the driver or each other, with an object store and a ledger in PostgreSQL; every view equals Spark
# batch at every epoch. Long histories: make suites-cluster HEADRACE_THOROUGH=1
suites-cluster: setup
	$(BIN)/python -m pytest --cluster --timeout 3600 -m "long or not long" $(addprefix tests/suites/test_,nexmark_queries.py tpch.py medallion.py) $(if $(HEADRACE_THOROUGH),,-k "not long_history and not long_streams") $(ARGS)

# Which test files lie in which shard, and how long each shard takes.
SHARDS ?= 12
shards: setup
	@HEADRACE_THOROUGH=1 $(BIN)/python tests/shards.py $(SHARDS)

tpcds: setup
	$(BIN)/python -m pytest -m long tests/suites/test_tpcds.py

# Random queries over random histories against Spark batch; failures are shrunk into
# tests/generator/regressions. For example: make random-queries PAIRS=10000 SEED=7 PROCESSES=2
PAIRS ?= 1000
SEED ?= 1
PROCESSES ?= 1
random-queries: setup
	PYTHONPATH=tests $(BIN)/python -m generator --pairs $(PAIRS) --seed $(SEED) --processes $(PROCESSES) $(ARGS)

# Real servers to try connectors with, until Ctrl-C: Kafka, PostgreSQL, Redis, Cassandra, DynamoDB, S3.
services: setup
	@PYTHONPATH=tests $(BIN)/python -m servers $(ARGS)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# For example: make benchmark OPTIONS="--events 500000 --save try"
benchmark: setup
	PYTHONPATH=tests $(BIN)/python -m benchmarks.run $(OPTIONS)

benchmark-peers: setup
	$(BIN)/python -m benchmarks.run --only peers $(OPTIONS)

# Nexmark's queries q0 to q22, with Flink beside them.
benchmark-nexmark: setup
	$(BIN)/python -m benchmarks.run --only queries $(OPTIONS)

# Every trouble at every point, every pair of points at which processes end, then random histories,
# on all cores without a JVM. For example: make simulate EXAMPLES=100000, and what has failed again:
# make simulate SEED=39, or make simulate LIST="every trouble on a store" SEED=91
EXAMPLES ?= 1000
simulate: setup
	@PYTHONPATH=tests $(BIN)/python -m simulation --examples $(EXAMPLES) $(if $(LIST),--list "$(LIST)") $(if $(filter command line environment,$(origin SEED)),--seed $(SEED)) $(ARGS)

# A server, its standby, PostgreSQL, an object store and a cluster of Spark are killed at random under
# load; for instance: make chaos ARGS='--kills 50 --cluster'
chaos: setup
	cd tests && ../$(BIN)/python -m faults.chaos $(ARGS)

# Whether memory, files and latency stay flat; for instance: make soak ARGS='--minutes 2'
soak: setup
	$(BIN)/python -m benchmarks.soak $(ARGS)

# A year of flights through six views; for instance: make demo ARGS='--rows 50000 --seconds 10'
demo: setup
	@$(BIN)/python examples/flights/demo.py $(ARGS)

# A clickstream behind a server, until Ctrl-C: the console at http://127.0.0.1:8088/, and a page that
# updates by itself at /pages/. For instance: make serve ARGS='--listen 127.0.0.1:9000'
serve: setup
	@$(BIN)/python examples/clickstream/serve.py $(ARGS)

# pipeline: from PostgreSQL through a view into Redis, Cassandra and a page. One source each, followed
# through a view: kafka, postgres, files, clickstream; and payledger, balances
# by a Python function over policies that change in the past. The smallest ones, each a page long:
# duality, accounts, orders, trending, viewership, features. For example:
# make example-kafka ARGS='--seconds 20', make example-payledger ARGS='--serve'
example-%: setup
	@PYTHONPATH=tests:examples $(BIN)/python examples/$*/pipeline.py $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
