# `make demo` and `make test` are all a newcomer needs: Python 3.10 to 3.13 and pip do the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One exact release first, so that no later requirement replaces it with another build.
TORCH ?= torch==2.13.0
NUMPY ?= numpy<2.5
PYTEST_ARGS ?= -n 2

export OMNI_SCAFFOLD_CACHE ?= $(CURDIR)/.cache

.PHONY: demo test lint golden golden-check docs bench clean help

help:
	@echo "make demo          render the BAGEL integration into build/demo and show it"
	@echo "make test          run all tests"
	@echo "make lint          ruff, mypy --strict, shell syntax"
	@echo "make golden        regenerate reference_bagel/"
	@echo "make golden-check  fail if reference_bagel/ is not what the tool writes"
	@echo "make docs          regenerate the recordings and generated pages of docs/"
	@echo "make bench         time the commands against 'python -c pass'"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tool: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: $(VENV)/.tool
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" "$(NUMPY)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,lint]" "$(TORCH)" "$(NUMPY)"
	@touch $@

demo: $(VENV)/.tool
	@rm -rf build/demo
	$(BIN)/omni-scaffold inspect bagel --vllm-omni 0.27.0rc1
	$(BIN)/omni-scaffold new bagel --vllm-omni 0.27.0rc1 --out build/demo

test: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	bash -n .ci/run

golden: $(VENV)/.tool
	rm -rf reference_bagel
	$(BIN)/omni-scaffold new bagel --vllm-omni 0.27.0rc1 --out reference_bagel

golden-check: $(VENV)/.tool
	@rm -rf build/golden
	$(BIN)/omni-scaffold new bagel --vllm-omni 0.27.0rc1 --out build/golden >/dev/null
	@diff --recursive --unified --no-dereference reference_bagel build/golden \
		&& echo "reference_bagel is what the tool writes" \
		|| { echo "reference_bagel differs; run 'make golden' and review the difference"; exit 1; }

docs: $(VENV)/.tool
	COLUMNS=120 $(BIN)/omni-scaffold inspect bagel --vllm-omni 0.27.0rc1 --export-svg docs/inspect.svg >/dev/null
	rm -rf build/recording
	$(BIN)/omni-scaffold new bagel --vllm-omni 0.27.0rc1 --out build/recording --export-svg docs/new.svg >/dev/null

bench: $(VENV)/.tool
	$(BIN)/python benchmarks/commands.py

clean:
	rm -rf build dist $(VENV)
