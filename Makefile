# The two commands of the README, and the rest of `make help`. Everything else is in tools/bootstrap.py and noxfile.py.
PYTHON ?= python3
PORT ?= 8000
# torch's threads spin while they wait; on a machine with other work a step then takes seven times as long.
export OMP_WAIT_POLICY ?= passive
# The environments keep their bytecode: a process that has to compile vLLM and torch first takes 20 s longer to start.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo serve test test-long lint types setup setup-dev clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## serve a small model on the software mesh, ask it a question, show the answer, stop
	@$(BIN)/python examples/demo.py

serve: setup ## the same, but keep the server up until Ctrl-C (PORT=8000)
	@$(BIN)/python examples/demo.py --keep --port $(PORT)

test: setup-dev ## run every check and the tests: lint, types, newest and oldest vLLM release, wheels, real ttnn
	@$(BIN)/nox

test-long: setup-dev ## the few tests that take a minute or more; CI runs them too
	@$(BIN)/nox -s long

lint: setup-dev ## ruff and the rules of who may import whom
	@$(BIN)/nox -s lint

types: setup-dev ## pyright, strict in the cores
	@$(BIN)/nox -s types

setup: ## make the environment that serves (done by the others when needed)
	@$(PYTHON) tools/bootstrap.py

setup-dev: ## the same with the test tools
	@$(PYTHON) tools/bootstrap.py --dev

clean: ## remove environments and build results; wheels and models in the user's cache stay
	rm -rf .venv .venvs .nox .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -prune -exec rm -rf {} +
