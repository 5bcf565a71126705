# Each target sets up its own environment. PYTHON selects the Python. By default, the first one that is new enough is used.
# uv is used from PATH, or installed into .uv from .ci/uv.txt. It installs uv.lock and downloads no Python.

DUCKDB_VERSION := 2.0.0
RUNTIME ?= serverless-4
# Their output depends on the releases in uv.lock.
OF_THE_LOCK = --ignore tests/golden --ignore tests/performance --deselect tests/test_wheel.py --deselect tests/publish/files/test_snappy.py \
	--deselect tests/test_docs.py::test_generated_pages_are_up_to_date
# pyenv puts a python3.12 on PATH that starts only in a shell with this version, so its folder is searched too.
PYTHON_3_12 = python3.12 $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/3.12.*/bin/python3.12)
# Databricks runtimes have Python 3.12. Without it, their packages are tried with the default Python.
RUNTIME_PYTHON = $$(PYTHON='$(PYTHON_3_12) $(or $(PYTHON),python3.11 python3.13 python3 python)' .ci/prerequisites)
UV := $(shell command -v uv || echo .uv/bin/uv)
RUN := .venv/bin/python
SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder
OF_FOLDER = $(or $(wildcard tests/$(FOLDER) tests/test_$(FOLDER).py),$(error There is no folder or test file '$(FOLDER)' in tests))
WITH_DUCKDB = "$(UV)" run --quiet --no-sync --python $(RUN) --with duckdb==$(DUCKDB_VERSION)
SYNC = "$(UV)" sync --quiet --frozen --no-default-groups --group dev --extra replica --extra openlineage --extra opentelemetry --python "$$(.ci/prerequisites)"

export UV_PYTHON_DOWNLOADS := never
export PYTHON
unexport VIRTUAL_ENV PYTHONHOME PYTHONDONTWRITEBYTECODE # without bytecode files, every process of a test compiles its imports

.DEFAULT_GOAL := help
.PHONY: help prerequisites setup demo demo-onelake demo-serverless test quick golden slow coverage test-floor check-runtime test-runtime test-runtime-spark test-connect check prose fmt docs dist bench bench-report age pictures soak lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r verb line; do printf 'make %-20s%s\n' "$$verb" "$$line"; done

setup: .venv/made ## create or update .venv
	@:

demo: setup ## publish a small shop in rounds, replicate it and compare every row
	@PYTHONPATH=. $(RUN) -m fixtures.demo.local

demo-onelake: setup ## run the demo with a simulated OneLake and Fabric
	@PYTHONPATH=. $(RUN) -m fixtures.demo.onelake

demo-serverless: setup ## run the demo under serverless restrictions: executors without network, secret or shared folder
	@PYTHONPATH=. $(RUN) -m fixtures.demo.serverless

test: setup ## run all tests except the long ones, in two processes; one folder: FOLDER=archive
	@$(RUN) -m pytest --durations=10 $(if $(FOLDER),$(OF_FOLDER),$(SIDE_BY_SIDE))

quick: check ## run the checks, and the tests that need neither Spark nor other processes nor a long proof
	@$(RUN) -m pytest $(SIDE_BY_SIDE) -m 'not slow and not soak and not spark and not proof and not process'

golden: setup ## regenerate the expected output of all commands
	@$(RUN) -m pytest tests/golden --renew

slow: setup ## run all tests except the long ones, and show time and CPU by cause, file and test
	@$(RUN) -m pytest $(if $(FOLDER),$(OF_FOLDER),$(SIDE_BY_SIDE)) -p tests.time_report

coverage: setup ## run all tests except the long ones, and list the lines that no test runs
	@$(RUN) -m coverage run -m pytest $(SIDE_BY_SIDE)
	@$(RUN) -m coverage combine --quiet
	@$(RUN) -m coverage report

test-floor: .venv-floor/made ## run all tests except the long ones with the oldest supported Spark
	@.venv-floor/bin/python -m pytest $(SIDE_BY_SIDE)

check-runtime: .venv-$(RUNTIME)/checked ## check that the wheel installs no dependencies in a Databricks runtime: RUNTIME=serverless-4
	@:

test-runtime: .venv-$(RUNTIME)/made ## run the tests without Spark, with the packages of a Databricks runtime: RUNTIME=serverless-4
	@.venv-$(RUNTIME)/bin/python -m pytest $(SIDE_BY_SIDE) -m 'not slow and not soak and not spark' $(OF_THE_LOCK)

test-runtime-spark: .venv-$(RUNTIME)/made ## run the tests with Spark in the same environment, with the closest Spark version
	@.venv-$(RUNTIME)/bin/python -m pytest $(SIDE_BY_SIDE) -m 'spark and not slow and not soak' $(OF_THE_LOCK)

test-connect: .venv-connect/made ## run the tests for Databricks Connect, if a workspace is configured
	@.venv-connect/bin/python -m pytest -m connect -rs

check: setup ## check formatting, lint, types, imports between folders, notebooks, the reference and the English of texts
	@$(RUN) -m ruff format --check --quiet || { echo 'Not formatted: run make fmt.'; exit 1; }
	@$(RUN) -m ruff check --quiet
	@PYTHONPATH=. $(RUN) -m tools.prose
	@$(RUN) -m mypy
	@.venv/bin/lint-imports --no-logo >.venv/imports.txt || { cat .venv/imports.txt; exit 1; }
	@PYTHONPATH=. $(RUN) -m tools.reference --check || { echo 'The reference is out of date: run make fmt.'; exit 1; }
	@.venv/bin/nbstripout --verify --keep-id notebooks/*.ipynb || { echo 'Notebooks contain outputs: run make fmt.'; exit 1; }
	@echo 'All checks passed.'

prose: setup ## check the English of pages, help texts and messages
	@PYTHONPATH=. $(RUN) -m tools.prose

fmt: setup ## format, fix lint, strip notebooks, regenerate the reference
	@$(RUN) -m ruff check --fix --quiet --exit-zero
	@$(RUN) -m ruff format
	@.venv/bin/nbstripout --keep-id notebooks/*.ipynb
	@PYTHONPATH=. $(RUN) -m tools.reference

docs: $(UV) ## build the site into docs/.site; a broken link is an error
	@"$$(.ci/prerequisites)" tools/site.py
	@"$(UV)" run --quiet --frozen --isolated --only-group docs --python "$$(.ci/prerequisites)" \
		zensical build --config-file docs/.zensical.toml --strict --clean

dist: $(UV) ## build the wheel and the bill of materials of a release into dist
	@"$(UV)" build --quiet --wheel --clear --no-create-gitignore --out-dir dist --python "$$(.ci/prerequisites)" \
		--build-constraints .ci/build.txt --require-hashes
	@"$(UV)" export --quiet --frozen --no-default-groups --all-extras --format cyclonedx1.5 --output-file dist/sbom.cdx.json
	@"$$(.ci/prerequisites)" tools/sbom.py dist

bench: setup $(UV) ## run the benchmark: publishing compared with alternatives and fixed bounds, and planning with another log reader
	@PYTHONPATH=. $(WITH_DUCKDB) python -m tests.bench
	@PYTHONPATH=. $(WITH_DUCKDB) python -m tests.bench.planning

age: setup ## compare each command on tables of a year with the same command on fresh tables; part of a year: SHARE=0.1
	@PYTHONPATH=. $(RUN) -m tests.performance.age --share $(or $(SHARE),1)

bench-report: setup ## plot the newest results of make bench, and write the figures of docs/performance-and-sizing.md
	@PYTHONPATH=. $(RUN) -m tests.bench.report

pictures: setup ## create the pictures of the README from the demo; needs Chromium
	@PYTHONPATH=. $(RUN) -m tools.screenshots

soak: setup ## run the long tests
	@MIRRORFEED_HYPOTHESIS=soak $(RUN) -m pytest -m 'soak or slow'

lock: $(UV) ## update uv.lock to match pyproject.toml
	@"$(UV)" lock --python "$$(.ci/prerequisites)"
	@echo 'hatchling>=1.27' | "$(UV)" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-annotate --custom-compile-command 'make lock' --output-file .ci/build.txt -

clean: ## delete environments, caches and builds
	@rm -rf .venv .venv-* .uv .mypy_cache .import_linter_cache .ruff_cache .pytest_cache .hypothesis .coverage* .demo .bench docs/.site docs/.cache dist notebooks/deployed spark-warehouse
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

prerequisites: # $(error) prints one line; a failing recipe prints two
	@$(eval lacking := $(shell PYTHON='$(PYTHON)' .ci/prerequisites 2>&1 >/dev/null))$(if $(lacking),$(error $(lacking)))

.venv/made: pyproject.toml uv.lock | prerequisites $(UV)
	@echo 'Setting up .venv'
	@UV_PROJECT_ENVIRONMENT=.venv $(SYNC) --group local
	@PYTHONPATH=. SPARK_SUBMIT_OPTS=-XX:TieredStopAtLevel=1 $(RUN) -m tools.warm_up
	@touch $@

.venv-floor/made: pyproject.toml uv.lock | prerequisites $(UV)
	@echo 'Setting up .venv-floor'
	@UV_PROJECT_ENVIRONMENT=.venv-floor $(SYNC) --group floor
	@touch $@

.venv-$(RUNTIME)/checked: pyproject.toml tools/runtimes.toml .ci/build.txt | prerequisites $(UV)
	@"$(RUNTIME_PYTHON)" -c 'import sys; sys.version_info[:2] == (3, 12) or print("No Python 3.12: testing the packages of $(RUNTIME) with", sys.executable)'
	@echo 'Setting up .venv-$(RUNTIME)'
	@"$(UV)" venv --quiet --clear --python "$(RUNTIME_PYTHON)" .venv-$(RUNTIME)
	@"$(RUNTIME_PYTHON)" tools/runtimes.py $(RUNTIME) > .venv-$(RUNTIME)/runtime.txt
	@"$(UV)" pip install --quiet --python .venv-$(RUNTIME) --requirements .venv-$(RUNTIME)/runtime.txt
	@"$(UV)" build --quiet --wheel --clear --no-create-gitignore --out-dir .venv-$(RUNTIME)/dist --python "$(RUNTIME_PYTHON)" \
		--build-constraints .ci/build.txt --require-hashes
	@"$(UV)" pip install --dry-run --python .venv-$(RUNTIME) .venv-$(RUNTIME)/dist/*.whl 2>&1 | "$(RUNTIME_PYTHON)" tools/runtimes.py --check
	@touch $@

.venv-$(RUNTIME)/made: .venv-$(RUNTIME)/checked
	@"$(UV)" pip install --quiet --python .venv-$(RUNTIME) --constraints .venv-$(RUNTIME)/runtime.txt --group dev \
		--group "$$($(RUNTIME_PYTHON) tools/runtimes.py --spark $(RUNTIME))" --editable '.[replica,s3]'
	@touch $@

.venv-connect/made: pyproject.toml uv.lock | prerequisites $(UV)
	@PYTHON='$(PYTHON_3_12)' .ci/prerequisites >/dev/null 2>&1 || { echo 'Databricks Connect needs Python 3.12: put python3.12 on PATH.' >&2; exit 1; }
	@echo 'Setting up .venv-connect'
	@export PYTHON='$(PYTHON_3_12)'; UV_PROJECT_ENVIRONMENT=.venv-connect $(SYNC) --group connect
	@touch $@

.uv/bin/uv: .ci/uv.txt | prerequisites
	@echo 'Installing uv into .uv'
	@"$$(.ci/prerequisites)" -m venv .uv
	@.uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement .ci/uv.txt
	@touch $@
