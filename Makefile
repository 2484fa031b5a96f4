# The two commands are `make demo` and `make test`; each sets up all it needs in .venv first.

PYTHON_FILES := gad tests bench

.DEFAULT_GOAL := help
.PHONY: help setup browser demo test lint fmt bench bench-local soak man lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv with gad and everything that it needs (the others do this by themselves)
	@scripts/setup

browser: ## The same, and Chromium when no browser is there: the web tools and their tests need one
	@scripts/setup --browser

demo: setup ## Hand a task to a real model as a file and watch it work
	@scripts/demo

test: browser lint ## Check the code's form, types and import rules, then run every test
	.venv/bin/pytest -n 2

lint: setup ## Check form, types and import rules only
	.venv/bin/ruff format --check $(PYTHON_FILES)
	.venv/bin/ruff check $(PYTHON_FILES)
	.venv/bin/mypy --strict
	.venv/bin/lint-imports

fmt: setup ## Format the code and mend what can be mended
	.venv/bin/ruff check --fix --exit-zero --quiet $(PYTHON_FILES)
	.venv/bin/ruff format $(PYTHON_FILES)

bench: browser ## Measure gad's own speed against a scripted model
	.venv/bin/python -m bench

bench-local: setup ## Measure how many simple tasks the local model gets done (some minutes)
	.venv/bin/python -m bench.local_tasks

soak: setup ## Load a daemon for half an hour, with faults and kills, and look whether all is well
	.venv/bin/python -m bench soak

man: setup ## Write the manual page gad(1) anew from the commands' help
	.venv/bin/python scripts/man

lock: setup ## Write requirements.lock anew with the newest versions that pyproject.toml allows
	@scripts/lock

clean: ## Remove what was made here; sessions in spool/ and work/ stay
	rm -rf .venv .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find gad tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
