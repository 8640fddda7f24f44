# The one set of commands, for people and for CI. Each target does its own set-up.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup jvm demo test sim scale chaos fuzz fuzz-store rot week compat check format wheel bench map codegen clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup: $(READY) ## virtual environment in .venv, with the quorate command

$(READY): pyproject.toml constraints.txt scripts/setup scripts/compiler hatch_build.py hatch_metadata.py $(wildcard native/*)
	@PYTHON="$(PYTHON)" scripts/setup
	@touch $@

jvm: ## find or install a JVM and Maven for the tests that use Apache Kafka
	@scripts/jvm

demo: setup jvm ## two clusters, a stock client, a leader killed during a backup on Spark, the restore
	@$(BIN)/quorate demo

test: setup jvm check ## everything that must hold: checks, unit, simulation, integration, compatibility
	@scripts/test

SEEDS ?= 1000
FIRST_SEED ?= 1
sim: setup ## whole clusters under faults, SEEDS=1000 of them on all cores
	$(BIN)/python -m tests.simulation.cluster --seeds $(SEEDS) --first $(FIRST_SEED)
	$(BIN)/python -m tests.simulation.replication --seeds $(SEEDS) --first $(FIRST_SEED)
	$(BIN)/python -m tests.simulation.transactions --seeds $(SEEDS) --first $(FIRST_SEED)

NODES ?= 50
PARTITIONS ?= 100000
scale: setup ## what a large cluster costs its controller, nodes and clients: NODES=50 with PARTITIONS=100000, and whole nodes with few
	$(BIN)/python -m tests.simulation.scale --nodes $(NODES) --partitions $(PARTITIONS)
	$(BIN)/python -m tests.simulation.scale --whole --nodes 5 20 $(NODES) --partitions 300

CHAOS_SECONDS ?= 300
chaos: setup ## kill -9, freeze and stop real nodes under load, for CHAOS_SECONDS=300, replace their certificates, then fuzz; nothing may be lost
	$(BIN)/python -m tests.chaos --seconds $(CHAOS_SECONDS)
	$(BIN)/python -m tests.fuzz --frames $(FRAMES)

FRAMES ?= 1000000
INPUTS ?= 10000000
fuzz: setup ## hostile bytes for the native module, INPUTS=10000000 a function; hostile frames for real nodes, FRAMES=1000000 a port; strangers at the door
	$(BIN)/python -m tests.fuzz.native --inputs $(INPUTS)
	$(BIN)/python -m tests.fuzz --frames $(FRAMES)

FLIPS ?= 500
KILLS ?= 20
rot: setup ## flip FLIPS=500 bits on the disks of real nodes; each must be found, none served, each repaired
	$(BIN)/python -m tests.chaos.rot --flips $(FLIPS)
	$(BIN)/python -m tests.chaos.rot --how written --flips 0 --rounds $(KILLS)

MUTATIONS ?= 100000
fuzz-store: setup ## hostile backups, MUTATIONS=100000 of them: no traceback, bounded memory, nothing outside touched
	$(BIN)/python -m tests.hostile_stores --mutations $(MUTATIONS)

week: setup ## a week of a continuous backup, a round every 2 s, in virtual time: what it keeps, writes and takes to read
	QUORATE_HEAVY=1 $(BIN)/python -m pytest -s tests/unit/backup/test_continuous_week.py -k two_second_rounds

compat: setup jvm ## run stock clients, tools and what is built on them; write the table of docs/compatibility.md
	-$(BIN)/python -m pytest -m proves tests/compat tests/ecosystem tests/integration
	$(BIN)/python scripts/compatibility_table.py

check: setup ## ruff, mypy --strict, import rules, tidiness
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/tidy.py

format: setup ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup jvm ## sdist and wheel in dist/, each tried in a clean environment of every Python that is here
	$(BIN)/python -m tests.wheel

bench: setup jvm ## side by side with Apache Kafka; results in benchmarks/results
	$(BIN)/python -m benchmarks

map: setup ## the rooms of the code, the doors between them, and the figures of a walk through it
	$(BIN)/python scripts/map.py

codegen: setup jvm ## generate src/quorate/protocol/messages from Kafka's definitions
	$(BIN)/python -m codegen

clean: ## remove what the other targets made
	rm -rf .venv .peers dist src/quorate/_native*.so .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
