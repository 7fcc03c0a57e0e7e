# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
MLFLOW := .venv-mlflow
BIN := $(VENV)/bin
export OMP_NUM_THREADS ?= 1
export RAY_AUTH_MODE ?= disabled
export RAY_USAGE_STATS_ENABLED ?= 0
export NO_MKDOCS_2_WARNING := 1
# The environments come without bytecode: without it on disk, every process would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs-shots setup setup-vllm setup-mlflow demo test bench faults scale soak drill lint docs clean help

help:
	@echo "make setup   the environment, in $(VENV)"
	@echo "make demo    set up, then evaluate four checkpoints of a tiny model over 2,000 scenes, with faults planted"
	@echo "make test    set up (vLLM's CPU build and an MLflow server too), then run every test"
	@echo "make lint    formatting, style, types, import floors, dependencies, docs"
	@echo "make bench   run the benchmarks (one: make bench ONLY=mds)"
	@echo "make faults  the fault matrix (a part: make faults ONLY=\"engine.segfault data.image\" SYSTEMS=proctor)"
	@echo "make scale   10,000, 100,000 and 1,000,000 rows of 5 to 10 JPEGs in a run each (ROWS=, DATA=directory to keep)"
	@echo "make docs-shots  the pictures of the run browser in docs/assets (needs Chromium)"
	@echo "make drill   80 cells on a real cluster that loses jobs, a node, its head and its watcher (CELLS=, MINUTES=)"
	@echo "make soak    100,000 rows under random faults, at most 30 minutes (ROWS=, SEED=, MINUTES=)"

setup: $(VENV)/.done

$(VENV)/.done: pyproject.toml scripts/setup_env.py
	$(PYTHON) scripts/setup_env.py main $(VENV)
	@touch $@

setup-vllm: $(VLLM)/.done

$(VLLM)/.done: pyproject.toml scripts/setup_env.py
	$(PYTHON) scripts/setup_env.py vllm $(VLLM)
	@touch $@

setup-mlflow: $(MLFLOW)/.done

$(MLFLOW)/.done: scripts/setup_env.py
	$(PYTHON) scripts/setup_env.py mlflow $(MLFLOW)
	@touch $@

demo: setup
	$(BIN)/proctor demo --out demo-run
	@echo "demo done: open demo-run/run/report.html, or look at every row: $(BIN)/proctor view demo-run"

# Several at a time: most tests wait for processes. Files stay whole, since tests of a file share what they start, and
# come in the order of tests/conftest.py. Tests with a Ray of their own come last, two at a time: each is a dozen
# processes.
test: setup setup-vllm setup-mlflow
ifdef PYTEST_ARGS
	$(BIN)/pytest --numprocesses 2 --dist loadfile $(PYTEST_ARGS)
else
	$(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder -m "not ray"
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder -m ray
endif
	@echo "tests done"

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python scripts/spec_reference.py --check
	$(BIN)/mkdocs build --strict --quiet

bench: setup
	$(BIN)/python -m benchmarks $(ONLY)

faults: setup
	$(BIN)/python -m benchmarks.faults $(if $(ONLY),--only $(ONLY)) $(if $(SYSTEMS),--systems $(SYSTEMS)) $(if $(JOBS),--jobs $(JOBS))

scale: setup
	$(BIN)/python -m benchmarks.scale $(if $(ROWS),--rows $(ROWS)) $(if $(DATA),--data $(DATA))

soak: setup
	$(BIN)/python -m benchmarks.soak $(if $(ROWS),--rows $(ROWS)) $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES))

drill: setup
	$(BIN)/python -m benchmarks.fleet $(if $(CELLS),--cells $(CELLS)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(ENGINE),--engine $(ENGINE)) $(if $(KEEP),--keep $(KEEP))

docs-shots: setup
	PYTHONPATH=. $(BIN)/python scripts/docs_shots.py docs/assets

docs: setup
	$(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) $(VLLM) $(MLFLOW) demo-run site .mypy_cache .ruff_cache .pytest_cache
