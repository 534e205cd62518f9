# make run: create .venv, install, serve the dashboard on PORT.   make test: install what the tests need, run them all.
# make screenshots: a picture of every page and state, in FOLDER.

PORT ?= 8501
HOST ?= 127.0.0.1
FOLDER ?= screenshots
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint screenshots clean

run: $(VENV)/.installed
	$(BIN)/python -m streamlit run app.py --server.port $(PORT) --server.address $(HOST) --server.headless true

test: $(VENV)/.installed-dev lint
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

screenshots: $(VENV)/.installed-dev
	PYTHONPATH=.:benchmarks $(BIN)/python tests/screenshots.py $(FOLDER)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info
