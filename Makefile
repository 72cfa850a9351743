# On a machine with python3 and make, `make demo` and `make test` do everything, set-up included.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT := experiments/out

.PHONY: install demo docs reproduce test test-newest browser test-slow check format bench prove clean

install: $(READY)

$(READY): pyproject.toml
	@echo "Setting up $(VENV) (once; a minute or two)"
	@test -x $(BIN)/python || python3 -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[cli,plots,report,arviz,tests]"
	@touch $(READY)

demo: install
	@$(BIN)/epf demo

# The site, into build/site; a broken link fails, and so does a cell of a notebook.
docs: install
	@test -x $(BIN)/zensical -a -x $(BIN)/jupyter-nbconvert || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@$(BIN)/python docs/run_notebooks.py
	@NO_COLOR=1 PYTHONPATH=docs $(BIN)/zensical build --strict --clean
	@echo "Open build/site/index.html"

reproduce: install
	@$(BIN)/python -m experiments.paper --out $(OUT)

# One process per file, so that its tests share what they compile. Run-time type checks triple the time of tracing: they
# are made where a trace or a small array says enough.
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=12
TYPED := tests/numerics tests/smc tests/polynomial tests/filters/test_precision.py tests/model/test_precise_laws.py
TYPES := --jaxtyping-packages=epf,beartype.beartype

test: install
	@$(BIN)/python $(PYTEST) $(addprefix --ignore=,$(TYPED))
	@$(BIN)/python $(PYTEST) $(TYPES) $(TYPED)

# The fast suite with the newest Python on this machine and the newest JAX that it can have, in an environment of its own.
NEWEST = $(firstword $(foreach v,14 13 12 11,$(shell python3.$(v) -c 'print("python3.$(v)")' 2>/dev/null)) python3)
test-newest:
	@test -x .venv-newest/bin/python || $(NEWEST) -m venv .venv-newest
	@.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager \
		--editable ".[cli,plots,report,arviz,tests]"
	@.venv-newest/bin/python -c "import sys, jax, jaxlib; print('Python', sys.version.split()[0], 'JAX', jax.__version__, 'jaxlib', jaxlib.__version__)"
	@.venv-newest/bin/python $(PYTEST)

# Pages are looked at in a real browser where there is one: this gets Debian's, and playwright, which drives it.
browser: install
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)
	@$(BIN)/python -c "import playwright" 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[browser]"

test-slow: install
	@$(BIN)/python $(PYTEST) -m slow

check: install
	@$(BIN)/ruff check --output-format concise .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/pyright

format: install
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: install
	@$(BIN)/python -m benchmarks

# Every method on every case with an exact posterior; what is finished is not run again. One process and one core per job.
JOBS := 2
prove: install
	@$(BIN)/python -m proving --jobs $(JOBS)
	@$(BIN)/python -m proving.summary --page

clean:
	rm -rf $(VENV) .venv-newest .jax_cache build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
