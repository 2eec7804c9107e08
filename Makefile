# Everything a fresh machine with python3, pip, git and make needs. `make help` lists the targets.
PYTHON ?= python3
PROFILE ?= cpu
ONLY ?=
CORES ?=
DATA ?=
DEVICE ?=
LABFLAGS ?=
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)
BIN = .venv/bin
SHELL = /bin/bash
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PROFILE ONLY DATA  # words for a program, not for a shell
unexport PYTHONDONTWRITEBYTECODE  # as in some containers: each of a thousand processes would compile the package
BEGAN := $(shell date +%s)

figures: .venv/.installed ## regenerate every figure that is out of date, then print the ledger (PROFILE=smoke|cpu|long|gpu|paper ONLY=part CORES=n DATA=folder DEVICE=cpu|cuda)
	@$(BIN)/brace-nb figures --profile "$$PROFILE" $(if $(ONLY),--only "$$ONLY") $(if $(CORES),--cores $(CORES)) $(if $(DATA),--data "$$DATA") $(if $(DEVICE),--device $(DEVICE))

test: .venv/.installed ## style, export in sync, notebooks clean, lessons run, pytest, every experiment at smoke size
	$(BIN)/ruff check nbs tests data setup.py
	$(BIN)/ruff format --check nbs tests data setup.py
	@test ! -x $(BIN)/biome || $(BIN)/biome ci
	$(BIN)/python tests/lessons.py
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
	$(BIN)/brace-nb figures --profile smoke --strict
	@test -z "$$RETIME" || $(BIN)/python -c 'import time, brace_nb.companion as c; c.remember_minutes("make test", time.time() - $(BEGAN))'
	@command -v chromium chromium-browser google-chrome >/dev/null || test -n "$$BRACE_NB_BROWSER" || \
		echo "The tests of the site in a browser were skipped: install one (apt-get install chromium) or set BRACE_NB_BROWSER."

lab: .venv/.installed ## open the notebooks in JupyterLab, at the index (LABFLAGS=--no-browser and the like; works as root, as in a container)
	$(BIN)/jupyter lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/nbs/index.ipynb $(AS_ROOT) $(LABFLAGS)

book: .venv/.installed ## build the site of lessons, experiments, figures, ledger and functions (data/derived/book/html)
	@$(BIN)/python nbs/_book/build.py

export: .venv/.installed ## write the package from the notebooks, and clean the notebooks
	find brace_nb -name '*.py' ! -name '__init__.py' -delete
	$(BIN)/nbdev_export
	$(BIN)/nbdev_clean

readme: .venv/.installed ## write the pages that are notebooks anew: README.md, CONTENTS.md, RUNNING.md, the hour, the reports
	$(BIN)/brace-nb readme

dist: .venv/.installed ## wheel and source archive in dist/, both without the clone's data
	rm -rf dist build
	$(BIN)/python setup.py -q sdist
	$(BIN)/python -m pip wheel -q --no-deps -w dist dist/*.tar.gz
	@ls -l dist

alone: dist ## try the wheel in an empty environment, outside of the clone (downloads what [tools] needs, 1.8 GB)
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder/env" && \
		"$$folder/env/bin/pip" install -q -c constraints.txt "$$(echo "$$PWD"/dist/*.whl)[tools]" && \
		cd "$$folder" && export PATH="$$folder/env/bin:$$PATH" && \
		python -c 'import numpy as np; np.save("x.npy", np.random.default_rng(0).random((200, 32)))' && \
		brace-nb --help && brace-nb evaluate x.npy && brace-nb binarize x.npy bits.npy && \
		brace-nb encode x.npy --preset sign && brace-nb search codes/codes.npy x.npy --top 1 | tail -3

install: .venv/.installed ## create .venv and install everything into it

.venv/.installed: settings.ini setup.py pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "brace_nb needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Point PYTHON= at one.")'
	@echo "installing into .venv (2-3 minutes; 2.8 GB with a CPU build of torch, above 6 GB with a CUDA build: see RUNNING.md)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[tools,clip,assignment,dev,slurm,book]'
	@touch $@

clean: ## delete the environment and everything that can be made again (figures/ stays)
	rm -rf .venv data/derived .pytest_cache .hypothesis .ruff_cache build dist *.egg-info .snakemake

help: ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: figures test lab book export readme dist alone install clean help
.DEFAULT_GOAL := help
