# Every target sets up .venv by itself; it is quick when that is done. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN = $(VENV)/bin
WORKDIR ?= runs/demo
# pyenv's commands know only the versions that are switched on; its folders hold all.
FOUND = $(or $(shell $(PYTHON) -c 'import sys; print(sys.executable)' 2>/dev/null),$(lastword $(wildcard $(HOME)/.pyenv/versions/$(PYTHON:python%=%).*/bin/$(PYTHON))),$(PYTHON))

.PHONY: demo demo-picture multihost-demo test test-all test-oldest lint format bench results notebooks docs dist repository clean

demo: $(VENV)/.ready
	$(BIN)/python launch.py --config configs/demo.py --workdir $(WORKDIR)

# The picture of the README, docs/images/demo_loss.png, and its numbers from a new run of the demo.
demo-picture: $(VENV)/.ready
	$(BIN)/python -m results demo-picture

# Two processes with four virtual devices each, on this machine; then the same in one process.
multihost-demo: $(VENV)/.ready
	$(BIN)/python -m vrl_jax.tools.local_hosts --processes 2 --compare --workdir runs/multihost-demo --config lenet_mnist \
	  --config.dataset=mnist_5k --config.devices=8 --config.period=10 --config.epochs=3 --config.init_epochs=1

# Each module runs in one of JOBS processes, in order: the many small modules at the end keep all of them busy. JOBS=0: no
# other processes, for a debugger.
JOBS ?= 2

test: $(VENV)/.ready-dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not slow' $(PYTEST_ARGS)

test-all: $(VENV)/.ready-dev
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# With the oldest versions that pyproject.toml allows, in an environment of its own; without the tests of docs and tools.
test-oldest: $(VENV)-oldest/.ready
	$(VENV)-oldest/bin/python -m pytest -m 'not slow' --ignore=tests/project -W default::DeprecationWarning $(PYTEST_ARGS)

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.ready-bench
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# RESULTS.md and its figures from the summaries of the runs in results/.
results: $(VENV)/.ready-dev
	$(BIN)/python -m results build

# With the full settings. The outputs are committed; the pages in site/notebooks need no network.
notebooks: $(VENV)/.ready-dev
	$(BIN)/jupytext --quiet --update --to ipynb notebooks/*.py
	$(BIN)/jupyter nbconvert --execute --inplace --ExecutePreprocessor.record_timing=False notebooks/*.ipynb
	$(BIN)/python notebooks/export/shrink_images.py notebooks/*.ipynb
	$(BIN)/jupyter nbconvert --to html --output-dir site/notebooks --HTMLExporter.mathjax_url=mathjax.js \
	  --template offline --TemplateExporter.extra_template_basedirs=notebooks/export notebooks/*.ipynb
	$(BIN)/python -c 'import importlib.util as u; print(*u.find_spec("sphinx-mathjax-offline").submodule_search_locations)' \
	  | xargs -I PACKAGE cp PACKAGE/static/mathjax/tex-svg.js site/notebooks/mathjax.js

docs: $(VENV)/.ready-dev
	$(BIN)/sphinx-build --fail-on-warning --keep-going --fresh-env --quiet docs site/docs
	@echo site/docs/index.html

# The wheel, and runs of it in an environment that has nothing else: first of the dependencies alone, then with `train`.
dist: $(VENV)/.ready-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(FOUND) -m venv --clear dist/venv
	dist/venv/bin/python -m pip install --quiet dist/*.whl
	cd dist && venv/bin/python -c 'import optax, vrl_jax; vrl_jax.as_optax(vrl_jax.vrl_sgd(optax.sgd(0.1)), period=4)'
	dist/venv/bin/python -m pip install --quiet "$$(echo dist/*.whl)[train]"
	cd dist && venv/bin/vrl-jax --config quadratic --workdir smoke
	rm -rf dist/venv dist/smoke

# Replaces the repository everywhere: make repository SLUG=owner/name
repository:
	@old=$$(sed -n 's|^Repository = "https://github.com/\([^"]*\)".*|\1|p' pyproject.toml) && test -n "$(SLUG)" \
	  && git grep -lF "$$old" | xargs perl -pi -e "s|\Q$$old\E|$(SLUG)|g"

clean:
	rm -rf $(VENV) $(VENV)-oldest build dist site *.egg-info

# PYTHONDONTWRITEBYTECODE makes every start read and compile all of JAX's sources, so bytecode is made here.
define install
	$(BIN)/python -m pip install --quiet --editable '.$(1)'
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m compileall -q $(VENV)/lib >/dev/null || true
	touch $@
endef

$(VENV)/bin/python:
	$(FOUND) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Python {v[0]}.{v[1]} is too old: 3.11 or newer is needed (make PYTHON=…)")'
	$(FOUND) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml | $(VENV)/bin/python
	$(call install,[train])

$(VENV)/.ready-dev: pyproject.toml | $(VENV)/bin/python
	$(call install,[dev])

$(VENV)/.ready-bench: pyproject.toml | $(VENV)/bin/python
	$(call install,[bench])

$(VENV)-oldest/.ready: pyproject.toml
	$(FOUND) -m venv --clear $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet uv
	$(VENV)-oldest/bin/uv pip install --quiet --python $(VENV)-oldest/bin/python --resolution lowest-direct --editable '.[dev]'
	touch $@
