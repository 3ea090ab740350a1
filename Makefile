# Everything a newcomer needs: `make demo` and `make test`. Python 3.10 to 3.13, pip and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test lint golden golden-check env clean

env: $(VENV)/.ready
