# make demo   install, then rank shaping candidates for a cart-pole swing-up (2 minutes on 2 CPU cores)
# make demo-auto   install, then search for shaping without a language model on Cartpole (2 to 4 minutes)
# make test   install, then run all tests
# make test-fast   install, then run the fast tests (under a minute on 2 cores), for daily work
# make bench-check   the tests of benchmarks/ (a minute), which make test leaves out
# make docs   build the site of docs/ into build/site, in an environment of its own; a dead link fails
# make lint   ruff and pyright
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python3.13; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo demo-auto test test-fast bench-check docs lint install clean

install: $(VENV)/installed

# the stamp holds the pins: a changed pin installs again
$(VENV)/installed: requirements.txt requirements-no-deps.txt pyproject.toml packages/isaacgym_mujoco/pyproject.toml
	@test -n "$(PYTHON)" || { echo "EnvCoderBench needs Python 3.11 or newer; install it or give PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-no-deps.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable packages/isaacgym_mujoco --editable .
	@touch $@
	@echo "installed into $(VENV); put its commands on the path with: . $(BIN)/activate"

# Triton's wheel has 188 MB, which a demo does not need
$(VENV)/tested: $(VENV)/installed requirements-test.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-test.txt
	@touch $@

demo: install
	$(BIN)/python scripts/demo.py

demo-auto: install
	$(BIN)/python scripts/demo_auto.py

test: $(VENV)/tested
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

test-fast: $(VENV)/tested
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not slow"

bench-check: $(VENV)/tested
	$(BIN)/python -m pytest benchmarks/tests

docs: $(VENV)-docs/installed
	$(VENV)-docs/bin/properdocs build --strict --config-file mkdocs.yml

$(VENV)-docs/installed: requirements-docs.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) $(VENV)-docs build dist
