# Needs Python 3.11 or newer and make. Everything else comes from the hash-pinned locks in requirements/.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --no-annotate --quiet

.PHONY: help up check test test-long screenshots first-day faults rehearsal upgrade bench docs lock vendor clean
.DEFAULT_GOAL := help

help:
	@echo 'make up     start Pulsekeeper on this machine (PORT, DATA_DIR, ADMIN_EMAIL, ADMIN_PASSWORD, ADMIN_PLAN)'
	@echo 'make check  run the checks and the quick tests: while you work'
	@echo 'make test   run all checks and tests'
	@echo 'make test-long  the same with ten times as many generated examples, and ten minutes of make faults; before a release'
	@echo 'make screenshots  capture every page, wide and narrow, light and dark (PAGE: part of a name, or readme)'
	@echo 'make first-day    play the first day of a user in a browser, and write its clicks and seconds to docs/use/first-day.md'
	@echo 'make faults kill parts of a running Pulsekeeper and verify every monitor and alert (SECONDS_TO_RUN, MONITORS, CHILDREN, SEED, HOSTILE, SEPARATE)'
	@echo 'make rehearsal  the same on two hosts, with PostgreSQL and Redis from Debian, then cut and killed locations, and one fault after the other (as root)'
	@echo 'make upgrade    time the locks of migrations, and on two hosts replace an older version by this one under load (FROM: a commit, SECONDS_TO_RUN)'
	@echo 'make bench  measure the load that this machine can handle (MONITORS, HEARTBEATS, WORKERS, SECONDS_TO_RUN, STEPS)'
	@echo 'make docs   build the documentation site in site/'
	@echo 'make lock   pin the dependencies of pyproject.toml (UPGRADE=1: use their newest versions)'
	@echo 'make vendor copy the chart library and the icons that frontend/package-lock.json pins into static/vendor (needs npm)'
	@echo 'make clean  remove the virtualenv and caches; the data in .data stays'

# `exec`: make waits for manage.py itself and passes SIGTERM on to it.
up: $(VENV)/.local
	@exec $(BIN)/python manage.py up

check: $(VENV)/.test
	@exec $(BIN)/python -m tests.run --quick

test: $(VENV)/.test
	@exec $(BIN)/python -m tests.run

test-long: $(VENV)/.test
	@EXAMPLES=10 $(BIN)/python -m tests.run
	@exec env SECONDS_TO_RUN=600 CHILDREN=300 $(BIN)/python -m tests.faults

screenshots: $(VENV)/.test
	@exec $(BIN)/python -m tests.browser.screenshots $(PAGE)

first-day: $(VENV)/.test
	@exec $(BIN)/python -m tests.browser.first_day

faults: $(VENV)/.test
	@exec $(BIN)/python -m tests.faults

rehearsal: $(VENV)/.test
	@$(BIN)/python -m tests.faults.walkthrough
	@$(BIN)/python -m tests.faults.rehearsal
	@$(BIN)/python -m tests.faults.outages
	@$(BIN)/python -m tests.faults.locations
	@exec $(BIN)/python -m tests.faults.plays

upgrade: $(VENV)/.test
	@$(BIN)/python -m tests.upgrade.locks
	@exec $(BIN)/python -m tests.faults.upgrade

bench: $(VENV)/.test
	@exec $(BIN)/python benchmarks/pipeline.py

docs: $(VENV)/.test
	@NO_MKDOCS_2_WARNING=1 exec $(BIN)/mkdocs build --strict --quiet

# pip compiles with one process. Like pip, ignore files that do not compile.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r $< && \
	{ $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true; }

# One virtualenv serves both, as test.txt contains local.txt in the same versions. `make up` accepts a virtualenv made for
# tests, and `make test` only adds packages to one made for `make up`.
$(VENV)/.local: requirements/local.txt | $(VENV)/.made
	@if [ -e $(VENV)/.test ] && [ $(VENV)/.test -nt $< ]; then touch $@; else \
		echo 'Installing requirements/local.txt' && \
		$(INSTALL) && touch $@; fi

$(VENV)/.test: requirements/test.txt | $(VENV)/.made
	@echo 'Installing requirements/test.txt'
	@$(INSTALL)
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo 'error: Pulsekeeper needs Python 3.11 or newer: PYTHON=python3.12 make ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo 'error: $(PYTHON) lacks venv: install it (Debian, Ubuntu: apt install python3-venv)' >&2; exit 1; }
	@echo 'Creating $(VENV)'
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# test.txt comes first, and the smaller locks use its versions.
lock: $(VENV)/.test
	$(COMPILE) $(if $(UPGRADE),--upgrade) --extra server --extra local --extra test -o requirements/test.txt
	$(COMPILE) --extra server --extra local -c requirements/test.txt -o requirements/local.txt
	$(COMPILE) --extra server -c requirements/test.txt -o requirements/production.txt
	$(subst pyproject.toml,,$(COMPILE)) --group agent -c requirements/test.txt -o requirements/agent.txt
	$(subst pyproject.toml,,$(COMPILE)) --group deploy -c requirements/test.txt -o requirements/deploy.txt

vendor:
	cd frontend && npm ci --ignore-scripts --no-audit --no-fund
	$(PYTHON) frontend/vendor.py

clean:
	rm -rf $(VENV) .virtualenvs .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
