# Rematch. Every target sets itself up: .venv, pinned packages (constraints.txt), compiled cores.
# Needs Python 3.11 to 3.14, a C compiler and make; tools/setup/doctor.py names what is missing.
#
#   make train PYTHON=python3.12                                       another Python
#   make train TORCH_INDEX=https://download.pytorch.org/whl/cpu        a CPU-only PyTorch

.PHONY: help train test style lint build bench clean distclean ready ready-bench
.NOTPARALLEL:

PYTHON ?=
TORCH_INDEX ?=
export PYTHON TORCH_INDEX
unexport PYTHONPATH PYTHONHOME
# The tests start hundreds of processes: each would compile all of Rematch anew.
unexport PYTHONDONTWRITEBYTECODE

# By way of the interpreter, so that a folder with any name works: a script's first line cannot quote it.
OURS := .venv/bin/python

help:
	@echo 'make train   set up, then train the recipe "quick" and show what it learned (about 90 s)'
	@echo 'make test    set up, then check style, types and behaviour'
	@echo 'make lint    style and types alone'
	@echo 'make bench   speed, beside Stable-Baselines3'
	@echo 'make build   set-up alone; recompiles what changed'
	@echo 'make clean   remove what was compiled and cached; make distclean: .venv too. Runs are kept'

train: ready
	@$(OURS) .venv/bin/rematch train quick

# Types are checked beside the tests, on the core that they leave: without a cache that takes a minute.
# worksteal: the tests of a module stay together, so that what they share is made once.
test: style
	@echo '== behaviour: pytest, and beside it types: mypy'
	@said=$$(mktemp); $(OURS) -m mypy > "$$said" 2>&1 & types=$$!; \
	trap 'kill $$types 2>/dev/null; rm -f "$$said"; exit 130' INT TERM; \
	$(OURS) -m pytest -n 2 --dist worksteal; behaviour=$$?; \
	wait $$types; typed=$$?; cat "$$said"; rm -f "$$said"; exit $$((behaviour ? behaviour : typed))

style: ready
	@echo '== style: ruff'
	@$(OURS) -m ruff check

lint: style
	@echo '== types: mypy'
	@$(OURS) -m mypy

bench: ready-bench
	@$(OURS) .venv/bin/rematch bench

build: ready

# prepare.py does only what is missing. Any Python from 3.8 on may run it; it picks the one to use.
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

ready-bench:
	$(call PREPARE,dev bench)

clean:
	rm -rf build rematch.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find rematch tests tools -name __pycache__ -prune -exec rm -rf '{}' +
	find rematch -name '*.pyx' | while IFS= read -r core; do rm -f "$${core%.pyx}.c" "$${core%.pyx}".*.so; done

distclean: clean
	rm -rf .venv
