# Copyright (c) 2026, gb10.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# tests/parts.yml lists what each part runs; these are the names to type.

SHELL := /bin/bash
PYTHON := .venv/bin/python
LAB := $(PYTHON) tests/lab/lab.py
PARTS := $(PYTHON) tests/tools/run_parts.py $(if $(RESUME),--resume) $(if $(STRICT),--strict)
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.DEFAULT_GOAL := help
.NOTPARALLEL:

##@ See it run
.PHONY: demo
demo: venv ## two simulated Sparks, the whole play, one chat completion
	$(LAB) up
	ansible-playbook -i inventories/lab playbooks/nemotron_tp2.yml
	ansible-playbook -i inventories/lab tests/lab/tasks/chat.yml

.PHONY: lab-up
lab-up: venv ## start the two simulated Sparks; safe to repeat
	$(LAB) up

.PHONY: lab-down
lab-down: venv ## remove both labs, and nothing else
	$(LAB) down
	$(LAB) --lab next down

##@ Test it
.PHONY: test test-full
test: venv ## every part but the long ones; RESUME=1 continues after a failure, STRICT=1 fails on a skipped part
	$(PARTS) --suite test

test-full: venv ## every part
	$(PARTS) --suite full

.PHONY: lint sanity units galaxy-build
lint: ## ansible-lint, yamllint, documentation, changelog
sanity: ## ansible-test sanity
units: ## unit tests
galaxy-build: ## build the collection, install it elsewhere, resolve every name from there

.PHONY: docs commands
docs: ## build the documentation (build/docs/html); a warning fails it
commands: ## every command that the README and the documentation show

.PHONY: inputs parsers awx
inputs: ## bad input is refused before any node is contacted
parsers: ## the engines' own parsers accept every shipped profile
awx: ## the AWX templates, without an AWX and without nodes

.PHONY: molecule preflight strangers lifecycle hardening escape awx-lab faults
molecule: ## the whole play, with Ray and without, and single roles on the lab: converge, idempotence, check mode, verify
preflight: ## what the preflight finds on nodes with injected faults, on the lab
strangers: ## the fabric probe; the doctor and init from an installed tarball, on the lab
lifecycle: ## each tag alone, drift and consent, teardown and up again, on the lab
hardening: ## interventions by hand and crashes, on the lab
escape: ## root in a container of the lab cannot reach the node
awx-lab: ## every job template of AWX, on the lab
faults: ## failures during a bring-up, on the lab, twice

.PHONY: soak
soak: ## faults of a pair under load, one after the other, on the lab: at most 100 minutes, ends with a table; GB10_SOAK_SEED=a number

.PHONY: sanity-next units-next play-next
sanity-next: ## sanity tests of what is shipped, on the newer ansible-core
units-next: ## unit tests on the newer ansible-core
play-next: ## the whole play on the newer ansible-core

.PHONY: engine-next two-clusters
engine-next: ## every scenario on nodes with the next Debian and its Docker engine
two-clusters: ## two clusters in one inventory

.PHONY: gpu-records
gpu-records: ## HOST=user@name, a GPU host with vLLM: start the engine model shape after model shape, and fetch the records to .cache/gpu-records
	@test -n "$(HOST)" || { echo "set HOST=user@name, a host with a GPU and vLLM for its python3" >&2; exit 2; }
	rsync -a tests/tools/record_engine.py tests/unit/fixtures/gpu/shapes.json $(HOST):gb10-records/
	ssh $(HOST) python3 gb10-records/record_engine.py --shapes gb10-records/shapes.json --out gb10-records/out $(if $(ONLY),--only $(ONLY))
	mkdir -p .cache/gpu-records/$(HOST)
	rsync -a $(HOST):gb10-records/out/ .cache/gpu-records/$(HOST)/

.PHONY: field-check
field-check: venv ## FILE=an archive of calibrate: verdicts that differ from those on its machine
	PYTHONPATH=collections $(PYTHON) tests/tools/field_check.py "$(FILE)"

lint units galaxy-build docs commands inputs parsers awx preflight strangers lifecycle hardening escape awx-lab soak: venv
	$(PARTS) $@

sanity: venv
	$(PARTS) sanity sanity-rest

sanity-next units-next play-next engine-next two-clusters: venv
	$(PARTS) $@

molecule: venv
	$(PARTS) play native roles

faults: venv
	$(PARTS) faults faults-again

##@ Build it
.PHONY: tarball
tarball: venv ## the collection's tarball (build/), the same bytes for the same commit
	$(PYTHON) tests/tools/collection_tarball.py build

.PHONY: ee-context
ee-context: venv ## the build context of the execution environment (build/ee)
	$(PYTHON) tests/tools/ee_context.py

##@ Housekeeping
.PHONY: venv
venv: ## the Python environment of everything above (.venv)
	@tests/tools/venv.sh current

.PHONY: clean
clean: ## remove the Python environments and caches, and the lab with its images
	python3 tests/lab/lab.py clean
	python3 tests/lab/lab.py --lab next clean
	rm -rf .venv .venv-docs .venv-next .cache .ansible build tests/output
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
