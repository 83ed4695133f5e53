# Rematch. Every target first prepares .venv, the pinned packages (constraints.txt) and the compiled cores.
# Needs Python 3.11 to 3.14, a C compiler and make; tools/setup/doctor.py reports what is missing.
#
#   make train PYTHON=python3.12                                       another Python
#   make train TORCH_INDEX=https://download.pytorch.org/whl/cpu        a CPU-only PyTorch

.PHONY: help train test test-all test-slow test-browser test-cluster style lint build wheel bench clean distclean ready ready-bench
.NOTPARALLEL:

PYTHON ?=
TORCH_INDEX ?=
export PYTHON TORCH_INDEX
unexport PYTHONPATH PYTHONHOME
# The tests start hundreds of processes; without bytecode files each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

# Scripts run through the interpreter, because their first line (#!) fails in folders with spaces in the name.
VENV_PYTHON := .venv/bin/python

help:
	@echo 'make train   set up, then train the recipe "quick" and show the result (about a minute)'
	@echo 'make test    set up, then check style, types and behaviour'
	@echo 'make test-all  the same, the slow tests, the pages in Chromium, and a Ray cluster'
	@echo 'make lint    check style and types only'
	@echo 'make bench   measure the speed, compared with Stable-Baselines3'
	@echo 'make build   set up only; recompiles changed cores'
	@echo 'make wheel   build dist/: the sources, and a wheel that installs without a compiler'
	@echo 'make clean   remove compiled files and caches; make distclean: .venv too. Runs are kept'

train: ready
	@$(VENV_PYTHON) .venv/bin/rematch train quick

# mypy runs in parallel with the tests; without a cache it takes a minute.
# worksteal: the tests of a module stay in one process, so that shared fixtures are built once.
test: style
	@echo '== behaviour: pytest; in parallel, types: mypy'
	@mypy_log=$$(mktemp); $(VENV_PYTHON) -m mypy > "$$mypy_log" 2>&1 & mypy_pid=$$!; \
	trap 'kill $$mypy_pid 2>/dev/null; rm -f "$$mypy_log"; exit 130' INT TERM; \
	$(VENV_PYTHON) -m pytest -n 2 --dist worksteal -m 'not slow'; pytest_code=$$?; \
	wait $$mypy_pid; mypy_code=$$?; cat "$$mypy_log"; rm -f "$$mypy_log"; \
	exit $$((pytest_code ? pytest_code : mypy_code))

# The slower suites too: long tests, pages in a real browser, and a Ray cluster.
test-all: test test-slow test-browser test-cluster

# Series of kills, whole trainings, many games: tests of more than three CPU seconds, marked `slow`.
test-slow: ready
	@echo '== slow tests'
	@$(VENV_PYTHON) -m pytest -n 2 --dist worksteal -m slow

# Without chromium and chromedriver the pages are skipped; in CI they fail. The exporters run here again, because
# the package of W&B is installed for these tests alone.
test-browser: ready-browser
	@echo '== pages in the browser'
	@REMATCH_BROWSER=1 $(VENV_PYTHON) -m pytest -rs -n 2 --dist loadfile $(wildcard tests/web/test_*browser.py) tests/reporting/exporters

test-cluster: ready-all
	@echo '== a Ray cluster of three nodes'
	@REMATCH_CLUSTER=1 $(VENV_PYTHON) -m pytest -n 2 --dist loadfile tests/cluster/test_ray.py tests/cluster/test_unusable_nodes.py

style: ready
	@echo '== style: ruff'
	@$(VENV_PYTHON) -m ruff check

lint: style
	@echo '== types: mypy'
	@$(VENV_PYTHON) -m mypy

bench: ready-bench
	@$(VENV_PYTHON) .venv/bin/rematch bench

build: ready

wheel: ready
	@$(VENV_PYTHON) tools/setup/build_wheel.py

# prepare.py does only what is missing. Any Python from 3.8 on can run it; it chooses the Python of .venv.
define PREPARE
@for python in python3 python3.14 python3.13 python3.12 python3.11 "$$PYTHON" python; do \
  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1 || continue; \
  exec "$$python" -B tools/setup/prepare.py $(1); \
done; \
echo 'Set-up cannot start: no Python was found. Install Python 3.11 or newer, for example by' >&2; \
echo '  sudo apt-get install -y python3 python3-venv python3-dev    (Debian, Ubuntu)' >&2; \
echo '  sudo dnf install -y python3 python3-devel    (Fedora)      brew install python    (macOS)' >&2; \
exit 2
endef

ready:
	$(call PREPARE,dev)

ready-browser:
	$(call PREPARE,dev browser wandb)

ready-all:
	$(call PREPARE,dev browser wandb cluster)

ready-bench:
	$(call PREPARE,dev bench)

clean:
	rm -rf build rematch.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find rematch tests tools -name __pycache__ -prune -exec rm -rf '{}' +
	find rematch -name '*.pyx' | while IFS= read -r core; do rm -f "$${core%.pyx}.c" "$${core%.pyx}".*.so; done

distclean: clean
	rm -rf .venv
