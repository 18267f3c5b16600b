# make lab    set up, check this machine, open JupyterLab on the chapters
# make test   set up, run every check and every test
# make help   the rest

PYTHON ?= python3
PIP_FLAGS ?= --quiet
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
KIT := $(VENV)/.kit

NBVAL := -p tests.notebooks.live --nbval --nbval-current-env --nbval-cell-timeout=120 \
  --nbval-sanitize-with=tests/notebooks/sanitize.cfg
# Notebooks whose outputs are compared with what they print now.
NOTEBOOKS = $(wildcard chapters labs/source)
# Tests that start processes, kernels and browsers, or measure time: one after the other.
LIVE = $(wildcard tests/runs tests/notebooks tests/browser)
# Those of what only teachers need, and of extras: in CI, and where `make kit` is said.
KIT_TESTS = tests/notebooks/test_book.py tests/notebooks/test_nbgrader.py tests/runs/test_hub.py \
  tests/runs/test_profiling_hf.py tests/unit/test_instructor_deploy.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup lab demo test lint unit live bench gpu-check chapters labs book slides hub release kit clean

help: ## what can be made
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(READY) ## make .venv and install the pinned requirements (done by all the others)

# Made anew only when the requirements change: the stamp is written last.
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "pplab needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
	    "Name another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) lacks the venv module. On Debian and Ubuntu:" \
	    "apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV): 1.6 GB, some minutes (make PIP_FLAGS= shows what it does)."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_FLAGS) --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install $(PIP_FLAGS) --disable-pip-version-check --no-deps -e .
	@touch $@

lab: $(READY) ## check this machine, open JupyterLab (ARGS=--no-open prints its address only)
	@$(BIN)/pplab doctor
	@$(BIN)/pplab lab $(ARGS)

demo: $(READY) ## four real ranks on this machine, beside their simulation
	@$(BIN)/pplab demo $(ARGS)

test: lint unit live $(if $(CI),kit) ## every check and test; `make -k test` goes on after a failure

lint: $(READY) ## ruff, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(READY) ## tests that need no process of their own, on two cores
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/unit

live: $(READY) ## real runs, the notebooks compared with their outputs, the browser
	$(BIN)/python -m pytest --durations=25 $(NBVAL) $(LIVE) $(NOTEBOOKS) $(if $(CI),$(KIT_TESTS:%=--ignore=%))

kit: $(KIT) ## tests of the book, the hub, the marks and extras (CI runs them after the others)
	$(BIN)/python -m pytest --durations=10 $(KIT_TESTS)

bench: $(READY) ## every ratio the project claims (ONLY=group)
	$(BIN)/python -m benchmarks $(ONLY)

gpu-check: $(READY) ## the tests that need a CUDA GPU
	$(BIN)/python -m pytest -m gpu tests

chapters: $(READY) ## execute the notebooks again and store their outputs (ARGS=path for one)
	$(BIN)/python tools/refresh_notebooks.py $(ARGS)

# What only those who teach need comes on top, when it is first asked for; the extras with it.
$(KIT): $(READY) requirements-kit.txt
	@echo "Installing what a teacher needs, and the extras, into $(VENV): 0.3 GB."
	@$(BIN)/python -m pip install $(PIP_FLAGS) --disable-pip-version-check \
	  -r requirements.txt -r requirements-kit.txt
	@touch $@

book: $(KIT) ## the course as a static site, build/book (ARGS=--live keeps its widgets)
	@$(BIN)/python -m tools.make_book $(ARGS)

slides: $(KIT) ## slides out of the chapters, build/slides (ARGS=path for one)
	@$(BIN)/python -m tools.make_slides $(ARGS)

hub: $(KIT) ## one server for a class (deploy/jupyterhub_config.py says what to set)
	@$(BIN)/python -m tools.make_hub $(ARGS)

release: $(KIT) ## the labs as an nbgrader course, for marks (ARGS="--out DIR")
	@$(BIN)/python tools/make_nbgrader.py $(ARGS)

labs: $(READY) ## generate what learners open, labs/*.ipynb, from labs/source
	$(BIN)/python tools/make_labs.py

clean: ## forget .venv and everything built
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
