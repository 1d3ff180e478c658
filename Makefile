# dubio: `make demo` shows it, `make test` checks it. Both make the environment they need.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt

# Byte code is written once, into the environment, whatever the shell says: nothing is compiled again at every start.
unexport PYTHONDONTWRITEBYTECODE

# One stamp per set of extras, newer than the files it depends on: the second call of any target installs nothing.
BASE := $(VENV)/.stamp-base
TRAIN := $(VENV)/.stamp-train
DEV := $(VENV)/.stamp-dev
DOCS := $(VENV)/.stamp-docs
SLOW := $(VENV)/.stamp-slow
LOADED := $(VENV)/.stamp-loaded

.PHONY: demo test environment lint typecheck imports unit axe test-slow packaging bench faults mutants fuzz docs screenshots results clean
.DEFAULT_GOAL := test

$(BASE):
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(TRAIN): $(BASE) pyproject.toml constraints.txt
	@echo 'Installing dubio[train] into $(VENV); the first time takes a minute or two.'
	@$(PIP) --editable '.[train]'
	@touch $@

$(DEV): $(BASE) pyproject.toml constraints.txt
	@echo 'Installing dubio[train,dev] into $(VENV); the first time takes a minute or two.'
	@$(PIP) --editable '.[train,dev]'
	@touch $(TRAIN) $@

$(DOCS): $(BASE) pyproject.toml constraints.txt
	@echo 'Installing dubio[docs] into $(VENV); the first time takes a minute or two.'
	@$(PIP) --editable '.[docs]'
	@touch $@

demo: $(TRAIN)
	$(BIN)/dubio run quick

# Types are checked beside the tests: from nothing it takes a minute of one core.
test: lint imports
	@$(MAKE) --no-print-directory --jobs 2 typecheck unit

# All that CI needs, in one call of pip.
environment: $(BASE)
	@$(PIP) --editable '.[train,dev,docs]'
	@touch $(TRAIN) $(DEV) $(DOCS)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/python tools/vocabulary.py

typecheck: $(DEV)
	$(BIN)/mypy

imports: $(DEV)
	$(BIN)/lint-imports

# The tests are loaded once, by one process, which leaves byte code of all that they import: those that start together
# would each compile the same files, for half a minute.
$(LOADED): $(DEV)
	@$(BIN)/python -m pytest --collect-only -qqq >/dev/null || true # the tests say what is wrong
	@touch $@

# Three processes on two cores: many tests wait for a browser, a server or a process that they started.
unit: $(LOADED)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -q

# axe-core looks for barriers in the page, in the browser tests alone; where it is missing they are skipped.
AXE_VERSION := 4.14.0
AXE := node_modules/axe-core/axe.min.js
axe: $(AXE)

$(AXE): Makefile
	@command -v npm >/dev/null || { echo 'axe-core comes from npm, which is not installed.' >&2; exit 1; }
	npm install --no-save --no-package-lock --no-audit --no-fund --silent --prefix . axe-core@$(AXE_VERSION)
	@touch $@

$(SLOW): $(DEV)
	@$(PIP) --editable '.[train,dev,ray]'
	@touch $@

test-slow: $(SLOW)
	$(BIN)/python -m pytest -m slow -q

packaging: $(DEV)
	$(BIN)/python -m pytest -m packaging -q tests/test_packaging.py

bench: $(DEV)
	$(BIN)/python -m bench

# Faults: kills of running benchmarks, a failure at every n-th system call of every write, lost power, lost
# nodes of a Ray cluster. `make faults KILLS=10 EVERY=20 DISKS=20 ROUNDS=1` takes minutes, 0 leaves a campaign out; after
# Ctrl-C the same command continues. Tests do a small part.
KILLS ?= 200
EVERY ?= 1
DISKS ?= 1000
ROUNDS ?= 20
SEED ?= 0
FIGURES ?= faults.json
faults: $(SLOW)
	$(BIN)/python -m campaigns.faults --kills $(KILLS) --every $(EVERY) --disks $(DISKS) --rounds $(ROUNDS) --seed $(SEED) --figures $(FIGURES)

# Mutation testing, an hour or so per package: `make mutants PACKAGES=referral`.
PACKAGES ?= referral statistics metrics
mutants: $(DEV)
	$(BIN)/python -m campaigns.mutants $(PACKAGES)

# Damaged files for every reader, hours for 100,000; then the state machines of the store with many examples.
CASES ?= 100000
EXAMPLES ?= 2000
SEED ?= 0
fuzz: $(DEV)
	$(BIN)/python -m campaigns.fuzz --valid --cases $(CASES) --seed $(SEED) --jobs 2
	$(BIN)/python -m campaigns.store_machine --examples $(EXAMPLES) --seed $(SEED)

docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The pictures in README and docs, from a run that is trained for them, or `make screenshots STORE=dubio-store`.
STORE ?=
screenshots: $(DEV)
	$(BIN)/python tools/screenshots.py $(if $(STORE),--store $(STORE))
	$(BIN)/python tools/queue_screenshots.py

# A page of docs/results: `make results PAGE=text` makes what is missing and writes it, PART=1 makes one part of at most two
# hours, STUDY='CLINC-OOS' makes and writes one section, DRY=1 states trainings and forecast, WRITE=1 writes the page from what
# the store has. Results are in RESULTS.
PAGE ?= text
PART ?=
STUDY ?=
DRY ?=
WRITE ?=
RESULTS ?= results-store
results: $(DEV)
	$(BIN)/python -m results $(PAGE) --store $(RESULTS)/$(PAGE) $(if $(PART),--part $(PART)) $(if $(STUDY),--study '$(STUDY)') $(if $(DRY),--dry-run) $(if $(WRITE),--write)

clean:
	rm -rf $(VENV) node_modules build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis fuzz-failures
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
