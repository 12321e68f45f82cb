# Two commands do all the set-up: `make solve` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: solve test lint docs clean

solve: $(VENV)/installed
	$(BIN)/piratenets solve allen-cahn

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/installed-dev
	$(BIN)/ruff check src tests
	$(BIN)/pyright

docs: $(VENV)/installed-dev
	$(BIN)/python -m pytest tests/docs

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) build dist src/*.egg-info
