# `make demo` shows everything, `make run` starts a broker, `make test` checks it all. They need only Python 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
DEV_STAMP := $(VENV)/.installed-dev
# Words for `locus demo`: make demo DEMO='--nodes 3'
DEMO ?=

.PHONY: demo run wheel venv test lint types imports unit docs test-compose clean

demo: $(DEMO_STAMP)
	@$(BIN)/locus demo $(DEMO)

run: $(STAMP)
	@$(BIN)/locus broker

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Locus needs Python 3.11 or newer; this is %d.%d. Say which with: make PYTHON=python3.11 ..." % sys.version_info[:2])'
	@scripts/system-packages venv $(PYTHON)
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | $(VENV)/bin/python
	@echo "Installing Locus into $(VENV) (about a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# Not quietly: Spark alone is half a gigabyte, and pip shows how far it is.
$(DEMO_STAMP): pyproject.toml scripts/system-packages | $(VENV)/bin/python
	@echo "Installing what the demonstration needs into $(VENV) (a few minutes the first time; Spark is most of it)"
	@$(BIN)/python -m pip install --disable-pip-version-check -e '.[demo]'
	@scripts/system-packages demo
	@touch $@ $(STAMP)

$(DEV_STAMP): pyproject.toml scripts/system-packages | $(VENV)/bin/python
	@echo "Installing what development needs into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@scripts/system-packages test
	@touch $@ $(STAMP)

venv: $(DEV_STAMP)

test: lint types imports unit

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_STAMP)
	$(BIN)/mypy

imports: $(DEV_STAMP)
	$(BIN)/lint-imports

unit: $(DEV_STAMP)
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup

# Without the packages it depends on; `pip install 'dist/….whl[demo]'` fetches those.
wheel: $(STAMP)
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

docs: $(DEV_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The pages are in build/site; begin with index.html"

test-compose: $(DEV_STAMP)
	docker build --network host -t locus --target broker .
	docker build --network host -t locus-pipeline --target pipeline .
	$(BIN)/python scripts/compose_cluster.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info build dist
