# On a machine with python3 and make, `make demo` and `make test` do everything, set-up included.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT := experiments/out

.PHONY: install demo reproduce test browser test-slow check format bench clean

install: $(READY)

$(READY): pyproject.toml
	@echo "Setting up $(VENV) (once; a minute or two)"
	@test -x $(BIN)/python || python3 -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[cli,plots,report,arviz,tests]"
	@touch $(READY)

demo: install
	@$(BIN)/epf demo

reproduce: install
	@$(BIN)/python -m experiments.paper --out $(OUT)

test: install
	@$(BIN)/python -m pytest -n 2

# The report is looked at in a real browser where there is one; this gets Debian's.
browser:
	@command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium)

test-slow: install
	@$(BIN)/python -m pytest -n 2 -m slow

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

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
