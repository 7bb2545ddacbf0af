# Everything runs in .venv/, made from pinned and hashed packages: `make run` and `make test` need
# Python 3.11 or later, pip, make and the package registry, and nothing else.
PYTHON ?= python3
VENV := .venv
PEERS := .venv-peers
BIN := $(VENV)/bin
# What the tests need beside the core.
EXTRAS := dev atari box2d figures hub minari minatar parquet video
# Other people's tools that our files are compared with; what they need beside torch is pinned anyway.
OTHERS := dm-haiku==0.0.17 flax==0.12.8 jmp==0.0.4 stable-baselines3==2.9.2 tabulate==0.10.0 \
  rliable==1.2.0 arch==7.2.0 pandas==2.3.3 pytz==2026.6 statsmodels==0.15.0 patsy==1.0.3 \
  python-dateutil==4.0.0 six==1.17.0 tzdata==2026.6 \
  ray==2.60.0 attrs==26.1.0 certifi==2026.10.18 charset-normalizer==3.5.2 jsonschema==4.26.0 \
  jsonschema-specifications==2025.9.1 referencing==0.37.0 requests==2.34.2 rpds-py==2026.9.1 \
  urllib3==2.8.0
# "compat" puts the clone on the path, so that a folder named conqur elsewhere does not hide it.
EDITABLE := --no-deps --no-build-isolation --config-settings editable_mode=compat --editable

.PHONY: help setup run test test-peers torture lint format bench constraints clean
help:
	@echo "make setup       make .venv/ (done by the others, too)"
	@echo "make run         set up, then run the main job (conqur tune)"
	@echo "make test        set up, then run the tests"
	@echo "make test-peers  the tests that need torch, flax or Ray, in an environment of their own"
	@echo "make torture     kill training runs 200 times, and see that nothing is lost (half an hour)"
	@echo "make lint        ruff and mypy"
	@echo "make format      let ruff rewrite the code"
	@echo "make bench       measured ratios, side by side (8 minutes)"
	@echo "make constraints pin the newest versions that fit pyproject.toml"
	@echo "make clean       remove the environments"

setup: $(VENV)/.ready

$(VENV)/.ready: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("conqur needs Python 3.11 or later; set PYTHON=...")'
	@echo "Setting up $(VENV)/: this takes a minute or two, and says nothing meanwhile."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r constraints.txt
	$(BIN)/python -m pip install --quiet $(EDITABLE) .
	@touch $@
	@echo "Done. To have conqur on the path: . $(BIN)/activate"

run: setup
	$(BIN)/conqur tune

test: setup
	$(BIN)/python -m pytest -n auto --ignore=tests/peers

torture: setup
	$(BIN)/python tests/torture.py --kills 200

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python benchmarks/head.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/search.py

# torch comes first and without a hash: which file of it fits depends on the machine.
$(PEERS)/.ready: constraints.txt pyproject.toml
	$(PYTHON) -m venv --clear $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet torch==2.13.0
	$(PEERS)/bin/python -m pip install --quiet --no-deps $(OTHERS)
	$(PEERS)/bin/python -m pip install --quiet --require-hashes -r constraints.txt
	$(PEERS)/bin/python -m pip install --quiet $(EDITABLE) .
	@touch $@

test-peers: $(PEERS)/.ready
	$(PEERS)/bin/python -m pytest -n auto tests/peers

constraints:
	$(PYTHON) -m venv --clear build/pins
	build/pins/bin/python -m pip install --quiet pip-tools
	echo 'setuptools>=77' | build/pins/bin/pip-compile --quiet --generate-hashes --allow-unsafe \
	  --strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-trusted-host \
	  --no-emit-find-links --no-emit-options $(EXTRAS:%=--extra %) --upgrade --output-file constraints.txt \
	  pyproject.toml -
	sed -i -e '/^#/d' -e '/^$$/d' constraints.txt

clean:
	rm -rf $(VENV) $(PEERS) build
