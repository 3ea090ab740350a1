# `make demo` and `make test` are all a newcomer needs: Python 3.10 to 3.13 and pip do the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# One exact release first, so that no later requirement replaces it with another build. Of what tests install, most is
# never imported: Python writes the bytecode of what is, and half of the time is saved.
TORCH ?= torch==2.13.0
NUMPY ?= numpy<2.5
# Percent of the runtime's lines and branches that its own tests have to run.
RUNTIME_COVERAGE ?= 90
# One worker more than processors, because tests wait for processes; those of a group share what they computed, in one.
PYTEST_ARGS ?= -n 3 --dist loadgroup
# A worker keeps one processor busy with an engine, and a third would import each once more.
ROLLOUT_ARGS ?= -n 2 --dist loadgroup
# Which tests `make test` runs: without a value those of the runtime, too.
TESTS ?=
# What level train and the learning curves run in: main of 2026-08-22.
VERL_OMNI_COMMIT ?= a1139bafffb5b9711f0a6b6edff8ecaa60bfff30

ROLLOUT_TESTS := tests/edit tests/grade tests/port tests/models tests/verify
LOCK := reference_bagel/verl_omni/pipelines/bagel_flow_grpo/scaffold.lock.toml

export OMNI_SCAFFOLD_CACHE ?= $(CURDIR)/.cache
VERL_OMNI_SRC ?= $(OMNI_SCAFFOLD_CACHE)/verl-omni
# Tests of a real verl-omni run where a checkout is at hand, as it is after `make train`.
CHECKOUT = $(if $(wildcard $(VERL_OMNI_SRC)/.git/HEAD),VERL_OMNI_SRC=$(VERL_OMNI_SRC))
# Types of torch and others are read once, not in every clean checkout.
export MYPY_CACHE_DIR ?= $(OMNI_SCAFFOLD_CACHE)/mypy

.PHONY: demo test runtime-test check-one test-table train-env rollout-env rollout rollout-table rollout-newest train train-table learning fuzz lint golden golden-check docs dist installs bench browser clean help

help:
	@echo "make demo          render the BAGEL integration into build/demo and show it"
	@echo "make test          run all tests but those of make rollout, make train and make test-table"
	@echo "make runtime-test  run the runtime's tests without the tool, with the lines that they cover"
	@echo "make check-one RULE=OSC104   the examples and mutants of one rule"
	@echo "make test-table    further rows: other releases, models and mistakes of what make test holds (2 minutes)"
	@echo "make train-env     build the environment of 0.27.0rc1, in which rollout and trainer run on a CPU (3 minutes, 3 GB)"
	@echo "make rollout-env   build the environments in which the real vllm-omni runs on a CPU (3 minutes and 2.9 GB each)"
	@echo "make rollout       run the tests that need them: BAGEL, and a package of each kind"
	@echo "make rollout-table  every complete pipeline in the real rollout, at both levels (10 minutes)"
	@echo "make rollout-newest  run those of the newest vllm-omni, which no verl-omni pins yet"
	@echo "make train         three steps of verl-omni's own trainer with the reference, on a CPU (5 minutes)"
	@echo "make train-table   every variant of level train, and every deliberate mistake (2 hours)"
	@echo "make learning      learning curves into docs/: rendered and hand-written BAGEL, three seeds (an hour)"
	@echo "make fuzz          mutate checkpoint headers and sources for OMNI_SCAFFOLD_FUZZ_SECONDS (300) each"
	@echo "make lint          ruff, mypy --strict, shell syntax, our own check on the reference"
	@echo "make golden        regenerate reference_bagel/"
	@echo "make golden-check  fail if reference_bagel/ is not what the tool writes"
	@echo "make docs          regenerate the recordings and generated pages of docs/"
	@echo "make dist          build wheel and sdist of the tool and of the runtime, and check their metadata"
	@echo "make installs      install them into fresh environments of Python 3.10 and 3.13, where they are there"
	@echo "make bench         time the commands against 'python -c pass'"
	@echo "make browser       install Chromium, which looks at verify's page, where apt and root are at hand"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tool: $(BIN)/python pyproject.toml
	$(PIP) -e .
	@touch $@

$(VENV)/.test: $(VENV)/.tool
	$(PIP) --no-compile "$(TORCH)" "$(NUMPY)"
	$(PIP) --no-compile -e ".[test,lint]" "$(TORCH)" "$(NUMPY)"
	@touch $@

demo: $(VENV)/.tool
	@rm -rf build/demo
	$(BIN)/omni-scaffold inspect bagel --vllm-omni 0.27.0rc1
	$(BIN)/omni-scaffold new bagel --vllm-omni 0.27.0rc1 --out build/demo

# Tests start hundreds of processes: the tool is compiled once for all of them, whatever the environment says.
test test-table: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.test
	$(CHECKOUT) $(BIN)/python -m pytest $(PYTEST_ARGS) -m "not rollout and not train and not train_table and not table" $(TESTS)

# The runtime's own tests, without the tool, and which lines of it they run.
runtime-test: $(VENV)/.test $(VERL_OMNI_SRC)/.git/HEAD
	cd runtime && $(CHECKOUT) $(abspath $(BIN))/python -m coverage run -m pytest -p no:cacheprovider -c pyproject.toml tests
	cd runtime && $(abspath $(BIN))/python -m coverage report --fail-under=$(RUNTIME_COVERAGE)

check-one: $(VENV)/.test
	@[ -n "$(RULE)" ] || { echo "which rule? make check-one RULE=OSC104"; exit 2; }
	$(BIN)/python -m pytest -p no:xdist tests/check/test_rule_examples.py tests/check/test_mutants.py -k "$(RULE)" -m "not table"
	$(BIN)/omni-scaffold check --explain $(RULE)

test-table: $(VENV)/.test
	$(CHECKOUT) $(BIN)/python -m pytest $(PYTEST_ARGS) -m "table and not rollout and not train and not train_table"

# One environment serves rollout and training of 0.27.0rc1; two steps that build it at once would refuse each other.
train-env: $(VENV)/.tool
	$(BIN)/omni-scaffold env train --vllm-omni 0.27.0rc1

rollout-env: train-env
	$(BIN)/omni-scaffold env rollout --vllm-omni 0.30.0

rollout: $(VENV)/.test rollout-env
	$(CHECKOUT) $(BIN)/python -m pytest $(ROLLOUT_ARGS) -m "rollout and not newest and not rollout_table" $(ROLLOUT_TESTS)

rollout-table: $(VENV)/.test rollout-env
	$(CHECKOUT) $(BIN)/python -m pytest $(ROLLOUT_ARGS) -m "rollout_table and not newest" $(ROLLOUT_TESTS)

rollout-newest: $(VENV)/.test
	$(BIN)/omni-scaffold env rollout --vllm-omni 0.32.0rc1
	$(BIN)/python -m pytest $(ROLLOUT_ARGS) -m newest tests/verify

# verl-omni is on no package index. Where it can neither be found nor cloned, its tests are skipped and say so.
$(VERL_OMNI_SRC)/.git/HEAD:
	@git clone --quiet https://github.com/verl-project/verl-omni $(VERL_OMNI_SRC) \
		&& git -C $(VERL_OMNI_SRC) checkout --quiet $(VERL_OMNI_COMMIT) \
		|| echo "no checkout of verl-omni in $(VERL_OMNI_SRC), and none to clone: set VERL_OMNI_SRC"

train: $(VENV)/.test $(VERL_OMNI_SRC)/.git/HEAD train-env
	VERL_OMNI_SRC=$(VERL_OMNI_SRC) $(BIN)/python -m pytest -m train tests/verify/train

train-table: $(VENV)/.test $(VERL_OMNI_SRC)/.git/HEAD
	$(BIN)/omni-scaffold env train
	VERL_OMNI_SRC=$(VERL_OMNI_SRC) $(BIN)/python -m pytest -v -m "train or train_table" tests/verify/train tests/own_pipeline

learning: $(VENV)/.test $(VERL_OMNI_SRC)/.git/HEAD train-env
	$(BIN)/python benchmarks/learning.py --verl-omni $(VERL_OMNI_SRC)

fuzz: $(VENV)/.test
	OMNI_SCAFFOLD_FUZZ_SECONDS=$${OMNI_SCAFFOLD_FUZZ_SECONDS:-300} \
		$(BIN)/python -m pytest -q -p no:cacheprovider tests/checkpoint/test_checkpoint_fuzz.py \
		tests/fuzz tests/render/test_hostile_strings.py

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	bash -n .ci/run && bash -n .ci/installs
	$(BIN)/omni-scaffold check reference_bagel

# The day that the golden output carries is the one in its own lock.
golden golden-check: export SOURCE_DATE_EPOCH = $(shell $(BIN)/python -c "import datetime, re, pathlib; \
	day = re.search('last_updated = .(.{10})', pathlib.Path('$(LOCK)').read_text())[1]; \
	print(int(datetime.datetime.strptime(day + ' +0000', '%m/%d/%Y %z').timestamp()))")

golden: $(VENV)/.tool
	@rm -rf build/golden
	$(BIN)/omni-scaffold new bagel --packaged --vllm-omni 0.27.0rc1 --patch --out build/golden
	rm -rf reference_bagel
	mv build/golden reference_bagel

golden-check: $(VENV)/.tool
	@rm -rf build/golden
	$(BIN)/omni-scaffold new bagel --packaged --vllm-omni 0.27.0rc1 --patch --out build/golden >/dev/null
	@diff --recursive --unified --no-dereference reference_bagel build/golden \
		&& echo "reference_bagel is what the tool writes" \
		|| { echo "reference_bagel differs; run 'make golden' and review the difference"; exit 1; }

docs: $(VENV)/.test
	COLUMNS=120 $(BIN)/omni-scaffold inspect bagel --vllm-omni 0.27.0rc1 --export-svg docs/inspect.svg >/dev/null
	rm -rf build/recording
	$(BIN)/omni-scaffold new bagel --vllm-omni 0.27.0rc1 --patch --out build/recording --export-svg docs/new.svg >/dev/null
	$(BIN)/omni-scaffold verify reference_bagel --export-svg docs/verify.svg >/dev/null
	$(BIN)/python -m scaffold.check.rules_page > docs/rules.md
	$(BIN)/python -m scaffold.grade.models_page > docs/models.md

dist: $(BIN)/python
	@echo "building wheel and sdist into dist/, and checking what an index would show"
	@rm -rf dist
	$(PIP) build twine
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist/runtime runtime
	$(BIN)/python -m twine check --strict dist/*.whl dist/*.tar.gz dist/runtime/*

# What an index offers, on the oldest and the newest Python that this machine has.
installs: dist
	.ci/installs

bench: $(VENV)/.tool
	$(BIN)/python benchmarks/commands.py

# Without Chromium the tests that need it are skipped and say so; that is no reason to fail here.
browser:
	@if command -v chromium chromium-browser google-chrome >/dev/null; then \
		echo "Chromium is there"; \
	elif ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ]; then \
		echo "no Chromium, and no apt with root to install it: the tests in a browser will be skipped"; \
	elif apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; then \
		echo "Chromium is installed"; \
	else \
		echo "apt could not install Chromium: the tests in a browser will be skipped"; \
	fi

clean:
	rm -rf build dist $(VENV)
