# Every target makes its own environment when there is none: nothing but Python and make is asked for.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow check fix bench clean

demo: $(STAMP)  ## the whole way on the embedded text; the report goes to artifacts/demo
	$(BIN)/tokagnostic demo

test: $(STAMP)  ## the default tier
	$(BIN)/python -m pytest

test-slow: $(STAMP)  ## the tier that takes minutes
	$(BIN)/python -m pytest -m slow

check: $(STAMP)  ## format, lint, types, import floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(STAMP)  ## format and mend what a machine can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## speeds, each against its rival in the same run
	$(BIN)/tokagnostic bench

# The stamp is written last, so that an interrupted installation is taken up again.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) artifacts/demo
