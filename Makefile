# `make demo` needs Python 3.11 or newer and nothing else; `make test` brings what it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=

# Node from the machine if it is new enough, else the one that Playwright brings.
NODE = $$(node -e 'process.exit(parseInt(process.versions.node) < 20)' 2>/dev/null && echo node || \
	$(BIN)/python -c 'import pathlib, playwright; print(pathlib.Path(playwright.__file__).parent / "driver" / "node")')

.PHONY: demo test faults lint format coverage bench programs clean

demo: $(VENV)/installed-gateway
	@$(BIN)/toolcast demo $(ARGS)

# Many tests wait for servers rather than compute, so that there are more of them at a time than processors.
test: $(VENV)/installed-dev programs
	$(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)
	$(NODE) --test tests/web/*.test.js

# What takes too long for every change: the faults at full length, and 10,000 examples for each state machine.
faults: $(VENV)/installed-dev
	$(BIN)/python -m tests.faults $(ARGS)
	HYPOTHESIS_PROFILE=faults $(BIN)/python -m pytest -n 2 tests/property -k machine --timeout 1800

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(VENV)/installed-dev programs
	$(BIN)/coverage run -m pytest $(ARGS)
	$(BIN)/coverage report --show-missing --skip-covered

bench: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.fanout $(ARGS)

# What tests drive: Debian's where it can be installed, else Playwright's own browser and what is there.
programs: $(VENV)/installed-dev
	@missing=; for program in chromium nginx curl jq; do \
		command -v $$program >/dev/null || missing="$$missing $$program"; \
	done; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; apt-get update -q && \
		apt-get install -y -q --no-install-recommends $$(echo $$missing | sed s/nginx/nginx-light/); \
	else \
		echo "Not installed, so that some tests are skipped:$$missing"; \
		command -v chromium >/dev/null || command -v google-chrome >/dev/null || $(BIN)/playwright install chromium; \
	fi

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "toolcast needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	{ rm -rf $(VENV); echo "The venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }

$(VENV)/installed-gateway: pyproject.toml | $(BIN)/python
	@echo "Installing toolcast into $(VENV) …"
	@$(PIP) install --editable '.[gateway]'
	@touch $@

# With all that `demo` needs, so that neither undoes what the other installed.
$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	@echo "Installing toolcast and its tools into $(VENV) …"
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/installed-gateway

clean:
	rm -rf $(VENV) build dist .coverage .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
