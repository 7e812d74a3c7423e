# make test and make demo are all a newcomer needs; both set up what is missing first.
# make check is for the inner loop: lint, and the rooms that are pure, in less than a minute.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Three at a time on two cores: a third of the time tests wait for processes, brokers and browsers.
PYTEST := $(BIN)/python -m pytest -n 3
# The gate gives the same answer twice for the same code; test-slow, and pytest by itself, throw dice.
SEED ?= 1
REPLAYED = --seed $(SEED) --hypothesis-seed=$(SEED)
PURE := $(addprefix tests/,core contract ordering tracking wire topology)

# Tests start some hundred Python processes, which would each compile the package again.
unexport PYTHONDONTWRITEBYTECODE
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

.PHONY: install check test test-times test-slow lint demo bench fuzz clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt scripts/ensure-java
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "happened needs Python 3.11 or newer; say which one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,dev]'
	@scripts/ensure-java
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: $(STAMP) lint
	$(PYTEST) -q -m 'not slow and not long' $(PURE)

test: $(STAMP) lint
	@scripts/ensure-chromium
	$(PYTEST) $(REPLAYED)

# The same tests, and what they cost by room and by test.
test-times: $(STAMP)
	@scripts/ensure-chromium
	$(PYTEST) $(REPLAYED) --times $(addprefix tests/,$(ROOM))

# All of it takes some hours on two cores; make test-slow ROOM="net contract" runs these folders of tests/.
test-slow: $(STAMP)
	@scripts/ensure-chromium
	HAPPENED_TESTS=thorough $(PYTEST) -m 'slow or sampled' --durations=20 $(addprefix tests/,$(ROOM))

demo: $(STAMP)
	@$(BIN)/python scripts/demo.py

bench: $(STAMP)
	$(BIN)/python bench/ordering.py

fuzz: $(STAMP)
	$(BIN)/python scripts/fuzz_wire.py
	$(BIN)/python scripts/fuzz_handshake.py

clean:
	rm -rf $(VENV) .venv-pyspark-* build dist demo-output src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
