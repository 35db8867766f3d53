# Needs python3 and make; everything else goes into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DOCS := .venv/.docs
# Two test processes of one thread each use two cores better than one process of two threads.
# A process that has nothing left takes tests from the other, so that both end together.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -rs

.PHONY: demo test check soak lint docs dist

demo: $(READY)  ## run the bundled benchmark, print its table, write its report and print where it is
	$(BIN)/seqdg bench
	$(BIN)/seqdg report runs/rotated-mnist

test: lint  ## all tests, in about 15 minutes on two cores; those that need what is not here skip and say so
	$(PYTEST) -m "not soak"

check: lint  ## the quick tests, in about three minutes: before every commit
	$(PYTEST) -m "not slow and not soak and not ray and not gpu"

soak: lint  ## all tests, and the same again for many more cases: before a release
	$(PYTEST)

docs: $(DOCS)  ## the docs as a site, in site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python scripts/site/check.py site

dist: $(READY)  ## the wheel and the source archive, in dist/, and what a package index would say of them
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

$(DOCS): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@
