# make demo   install, then rank shaping candidates for a cart-pole swing-up (2 minutes on 2 CPU cores)
# make demo-auto   install, then search for shaping without a language model on Cartpole (2 to 4 minutes)
# make test   install, then run all tests
# make test-fast   install, then run the fast tests (about 2 minutes on 2 cores), for daily work
# make test-mjlab   what needs mjlab, with mjlab, in an environment of its own; a test that is skipped fails
# make test-isaaclab   isaaclab_mujoco, and tasks isaaclab:NAME, with Isaac Lab 2.3 and 2.2 in an environment of its own; needs Python 3.11
# make bench-check   the tests of benchmarks/ (half a minute), which make test leaves out
# make docs   build the site of docs/ into build/site, in an environment of its own; a dead link fails
# make lint   ruff and pyright
# make release   build what PyPI gets into dist/, check it, and follow README and tutorial with it in new environments; uploads nothing
# make lock   write requirements.txt and those of the tests, mjlab and builds again, with the hashes of all files; needs uv
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python3.13; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
# without it each process of the tests would compile all modules anew
unexport PYTHONDONTWRITEBYTECODE

# The files have all packages, so that nothing is resolved; modules are compiled when they are first imported
# and what builds packages is locked, too: with --no-build-isolation pip takes it from the environment
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-build-isolation
LOCKED = --no-deps --require-hashes -r

# Pythons that follow the pages in make release; with portable: before one it computes as another processor does
PYTHONS ?= python3.11 portable:python3.13

.PHONY: demo demo-auto test test-fast test-mjlab test-isaaclab bench-check docs lint lock release install clean

install: $(VENV)/installed

# the stamp holds the pins: a changed pin installs again
$(VENV)/installed: requirements-build.txt requirements.txt requirements-torch.txt pyproject.toml packages/mujoco_batches/pyproject.toml packages/isaacgym_mujoco/pyproject.toml
	@test -n "$(PYTHON)" || { echo "EnvCoderBench needs Python 3.11 or newer; install it or give PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(LOCKED) requirements-build.txt
	$(PIP) $(LOCKED) requirements.txt
	$(PIP) -r requirements-torch.txt
	$(PIP) --no-deps --editable packages/mujoco_batches --editable packages/isaacgym_mujoco --editable .
	@touch $@
	@echo "installed into $(VENV); put its commands on the path with: . $(BIN)/activate"

# Ray, W&B, a browser's driver and Triton, which a demo does not need
$(VENV)/tested: $(VENV)/installed requirements-test.txt
	$(PIP) $(LOCKED) requirements-test.txt
	@touch $@

# mjlab, and what it needs besides. The packages of .venv follow on the path, those that are installed from this folder included
$(VENV)-mjlab/installed: $(VENV)/tested requirements-mjlab.txt
	$(PYTHON) -m venv $(VENV)-mjlab
	$(VENV)-mjlab/bin/python -c 'import site; base, own = map(site.getsitepackages, (["$(abspath $(VENV))"], None)); \
		open(f"{own[0]}/base.pth", "w").write(f"import site; site.addsitedir({base[0]!r})\n")'
	$(VENV)-mjlab/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(LOCKED) requirements-mjlab.txt
	@touch $@

# Isaac Lab, what it needs besides, and in a folder of its own its release 2.2
$(VENV)-isaaclab/installed: $(VENV)/tested requirements-isaaclab.txt requirements-isaaclab-2.2.txt
	$(PYTHON) -m venv $(VENV)-isaaclab
	$(VENV)-isaaclab/bin/python -c 'import site; base, own = map(site.getsitepackages, (["$(abspath $(VENV))"], None)); \
		open(f"{own[0]}/base.pth", "w").write(f"import site; site.addsitedir({base[0]!r})\n")'
	$(VENV)-isaaclab/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(LOCKED) requirements-isaaclab.txt
	$(VENV)-isaaclab/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade \
		--target $(VENV)-isaaclab/isaaclab-2.2 $(LOCKED) requirements-isaaclab-2.2.txt
	@touch $@

# requirements.txt has the product with videos, requirements-test.txt what tests and examples need besides, requirements-mjlab.txt
# mjlab with what it needs besides these; torch and what its CUDA build brings are not locked: see requirements-torch.txt
# requirements-build.txt has what builds this package, editable, and those of the others that have no wheel
BUILD := 'hatchling>=1.25' 'editables>=0.5' 'setuptools>=70.1'
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-package isaacgym-mujoco --no-emit-package mujoco-batches
# without what Isaac Lab's own metadata requires: Isaac Sim's pins, and packages for cameras
ISAACLAB := isaaclab==2.3.2.post1 rsl-rl-lib==3.0.1 prettytable wcwidth trimesh gitpython gitdb smmap toml usd-core

lock:
	$(LOCK) pyproject.toml --extra video --output-file requirements.txt
	awk '/^[a-z]/ { skip = /^(torch|triton|(cuda|nvidia)-[a-z0-9-]*)==|== .emscripten/ } !skip' requirements.txt > requirements.new
	mv requirements.new requirements.txt
	$(LOCK) pyproject.toml --extra dev --extra ray --constraint requirements.txt --output-file requirements-test.txt
	awk 'NR == FNR { if (/^[a-z]/) { split($$1, name, "=="); have[name[1]] = 1 } next } \
		/^[a-z]/ { split($$1, name, "=="); skip = (name[1] in have) || /^(torch|(cuda|nvidia)-[a-z0-9-]*)==|== .emscripten/ } \
		!skip' requirements.txt requirements-test.txt > requirements.new
	echo elegantrl==0.3.6 | $(LOCK) --no-deps - >> requirements.new  # it requires gym[Box2D], which needs a compiler
	mv requirements.new requirements-test.txt
	printf '%s\n' $(BUILD) | $(LOCK) --constraint requirements.txt --constraint requirements-test.txt \
		--output-file requirements-build.txt -
	cat requirements.txt requirements-test.txt > requirements-mjlab.txt  # uv keeps these versions where it can
	$(LOCK) pyproject.toml --extra mjlab --output-file requirements-mjlab.txt
	awk 'FILENAME != "requirements-mjlab.txt" { if (/^[a-z]/) have[$$1] = 1; next } \
		/^[a-z]/ { skip = ($$1 in have) || /^(rsl-rl-lib|torch|triton|(cuda|nvidia)-[a-z0-9-]*)==|== .emscripten/ } \
		!skip' requirements.txt requirements-test.txt requirements-mjlab.txt > requirements.new
	printf 'gaitkeeper==0.5.4\nmjlab==1.6.0\nrsl-rl-lib==5.4.2' | $(LOCK) --no-deps - >> requirements.new  # mjlab pins it, and mujoco 3.11: docs/mjlab.md
	mv requirements.new requirements-mjlab.txt
	printf '%s\n' $(ISAACLAB) | $(LOCK) --no-deps --output-file requirements-isaaclab.txt -
	echo isaaclab==2.2.0 | $(LOCK) --no-deps --output-file requirements-isaaclab-2.2.txt -

demo: install
	$(BIN)/eval-shapers --task CartpoleSwingup --num_envs_per_candidate 64 --learning_iterations 100 --seeds 3

demo-auto: install
	$(BIN)/auto-shape --task Cartpole --llm evolve --shaper_types compute_reward compute_torque --num_iters 5 \
		--shapers_per_iter 8 --num_envs_per_candidate 64 --learning_iterations 24 --seeds 2 --sim mujoco_cpu --device cpu \
		--final_seeds 4 task.env.maxEffort=4 evaluation.points=1 evaluation.num_envs=16 evaluation.final_episodes=16 \
		final_episodes=32

test: $(VENV)/tested
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

test-fast: $(VENV)/tested
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m "not slow"

test-mjlab: $(VENV)-mjlab/installed
	$(VENV)-mjlab/bin/python -m pytest -n $(JOBS) --dist worksteal --no-skips -m "not cuda" $(PYTEST_FLAGS) \
		-k "mjlab or rsl_rl" tests/sources/mjlab_tasks tests/trainers/test_rsl_rl.py benchmarks/tests/test_measure.py

test-isaaclab: $(VENV)-isaaclab/installed
	$(VENV)-isaaclab/bin/python -m pytest -n 0 $(PYTEST_FLAGS) packages/mujoco_batches/tests/assets
	$(VENV)-isaaclab/bin/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_FLAGS) packages/isaaclab_mujoco/tests
	$(VENV)-isaaclab/bin/python -m pytest -n $(JOBS) --dist loadfile $(PYTEST_FLAGS) tests/sources/isaaclab_tasks
	ISAACLAB_PATH=$(VENV)-isaaclab/isaaclab-2.2/isaaclab $(VENV)-isaaclab/bin/python -m pytest -n 0 $(PYTEST_FLAGS) \
		-k "own_environment or release or alone" tests/sources/isaaclab_tasks/test_lab_numbers.py

bench-check: $(VENV)/tested
	$(BIN)/python -m pytest -n $(JOBS) benchmarks/tests

docs: $(VENV)-docs/installed
	$(VENV)-docs/bin/properdocs build --strict --config-file mkdocs.yml

$(VENV)-docs/installed: requirements-docs.txt
	$(PYTHON) -m venv $(VENV)-docs
	$(VENV)-docs/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

# PIP_CONSTRAINT=FILE chooses versions for the environments, of torch for example
release: $(VENV)-release/installed
	rm -rf dist
	$(VENV)-release/bin/python scripts/release.py
	$(VENV)-release/bin/python scripts/follow_pages.py $(PYTHONS)

$(VENV)-release/installed: requirements-release.txt
	$(PYTHON) -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-release.txt
	@touch $@

lint: $(VENV)/tested
	$(BIN)/ruff check .
	$(BIN)/pyright

clean:
	rm -rf $(VENV) $(VENV)-docs $(VENV)-mjlab $(VENV)-isaaclab $(VENV)-release build dist
