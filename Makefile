# Every target does its own set-up in .venv; only python3 >= 3.11 with venv, a C++ compiler and make are needed.
#
# make test ARGS='tests/test_conv.py -k same'     make test INFINIOP_CY_DEBUG=1     make test CC=clang CXX=clang++
# PYTHON is the one that .venv is made from: make clean before choosing another.
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
PIP := $(RUN) -m pip --disable-pip-version-check --quiet
SOURCES := setup.py pyproject.toml tools/toolchain.py infiniop_cy/operators.py infiniop_cy/stubs.py infiniop_cy/capi/render.py \
	$(shell find infiniop_cy -name '*.pyx' -o -name '*.pxi' -o -name '*.h' -o -name '*.cpp' -o -name '*.in' \
		-o -name '*.map')
# What `make lint` reads: what git knows, or would.
linted = $(shell git ls-files --cached --others --exclude-standard $(1))
CYTHON_FILES = $(call linted, '*.pyx' '*.pxi')
CPP_FILES = $(call linted, '*.h' '*.cpp' '*.cu' '*.cuh')
PYTHON_FILES = $(call linted, '*.py')
DEF := (?:cp?def (?:[^c]|c[^l])|def )[^(\n]*
# What else changes the compiled module: another value of any of these builds it again.
SETTINGS := $(foreach name,CC CXX CPPFLAGS CFLAGS CXXFLAGS LDFLAGS INFINIOP_CY_OPENMP INFINIOP_CY_DEBUG INFINIOP_CY_SANITIZE INFINIOP_CY_EMULATE_AMX INFINIOP_CY_EMULATE_AVX512,$(name)=$($(name)))

.PHONY: help test fuzz demo demo-mpi bench bench-conv docs lint test-aarch64 clean FORCE

help:  ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' Makefile

# Tests that start programs, which take as long as the tests on the CPU would otherwise outlast those on the GPU.
PROGRAMS := $(addprefix tests/,bridges test_distributed.py test_examples.py test_fuzz.py)

test: $(VENV)/test.stamp  ## build, then run the tests, on the CPU and on an emulated GPU; ARGS='...' goes to one pytest
ifeq ($(ARGS),)
	@# Side by side; threads that wait must not keep the other's core.
	@export OMP_WAIT_POLICY=passive; \
	{ $(RUN) -m pytest --device emulated; gpu=$$?; $(RUN) -m pytest $(PROGRAMS) && exit $$gpu; } \
		> $(VENV)/test-beside.log 2>&1 & \
	$(RUN) -m pytest $(PROGRAMS:%=--ignore=%); cpu=$$?; wait $$!; beside=$$?; \
	cat $(VENV)/test-beside.log; exit $$((cpu || beside))
else
	$(RUN) -m pytest $(ARGS)
endif

fuzz: $(VENV)/test.stamp  ## build, then random calls; ARGS='--seconds 600 --seed 7 --kinds convolution'
	cd tests && ../$(RUN) -m fuzz $(ARGS)

demo: $(VENV)/demo.stamp  ## build, then train a small network on handwritten digits, all layers by this library
	$(RUN) examples/train_digits.py $(ARGS)

demo-mpi: $(VENV)/demo-mpi.stamp  ## build, then train it on 1, 2, 3 and 4 processes, to the same weights
	$(RUN) examples/train_digits_mpi.py --compare 1 2 3 4 $(ARGS)

bench: $(VENV)/bench.stamp  ## build, then measure every operator beside torch, NumPy and memory itself
	$(RUN) benchmarks/bench.py $(ARGS)

bench-conv: $(VENV)/bench-conv.stamp  ## the same for convolutions (ARGS='--family zoo' for whole networks)
	$(RUN) benchmarks/conv.py $(ARGS)

docs: $(VENV)/docs.stamp  ## build the site into docs/_build/html, run every session and example in it, check its links
	$(RUN) docs/check_pages.py sessions
	@# Warnings are errors: names that are not there, links to nowhere, examples that fail. They come up when a page is
	@# read, so all are read anew.
	rm -rf docs/_build docs/generated
	$(RUN) -m sphinx -b html -d docs/_build/doctrees -W --keep-going -q docs docs/_build/html
	$(RUN) -m sphinx -b doctest -d docs/_build/doctrees -W --keep-going -q docs docs/_build/doctest
	$(RUN) docs/check_pages.py examples links

lint: $(VENV)/lint.stamp  ## style, lines of 120 columns, functions of 60 lines, types, the stubs against what they describe
	$(RUN) -m ruff check .
	PATH=$(abspath $(BIN)):$$PATH cython-lint $(CYTHON_FILES)
	$(BIN)/clang-format --dry-run --Werror $(CPP_FILES)
	$(BIN)/lizard --length 60 --CCN 1000 --warnings_only $(CPP_FILES) $(PYTHON_FILES)
	@# None of these tools measures functions in Cython: no def, at either indentation, may have 60 deeper lines below it.
	@$(BIN)/rg --multiline --line-number --only-matching --replace '$${1}$${2} has more than 60 lines' \
		-e '^($(DEF))\(.*\n(?:(?: .*)?\n){59}\n* +\S' -e '^    ($(DEF))\(.*\n(?:(?:     .*)?\n){59}\n* {5,}\S' \
		$(CYTHON_FILES); test $$? -eq 1
	$(RUN) -m mypy
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(RUN) -m mypy.stubtest infiniop_cy --mypy-config-file pyproject.toml \
		--allowlist .ci/stubtest-allowlist.txt --ignore-unused-allowlist

test-aarch64: $(VENV)/test.stamp  ## compile for aarch64 and run the tests of values there, by qemu
	.ci/aarch64.sh $(RUN)

clean:  ## remove all that was made, .venv included
	rm -rf $(VENV) build dist *.egg-info examples/output docs/_build docs/generated
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf infiniop_cy/core/*.so infiniop_cy/capi/lib infiniop_cy/capi/infiniop.pxd infiniop_cy/capi/include/infiniop.h
	rm -f infiniop_cy/elementwise.pyi infiniop_cy/bridges/*.pyi
	find infiniop_cy/capi/include/infiniop/ops -name '*.h' ! -name 'conv*.h' -delete

$(VENV)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "infiniop_cy needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || \
			echo not found). Name one that is: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/settings: FORCE | $(VENV)/python.stamp
	@echo '$(SETTINGS)' | cmp -s - $@ || echo '$(SETTINGS)' > $@

$(VENV)/build.stamp: $(SOURCES) $(VENV)/settings
	rm -rf build
	$(PIP) install --editable .
	@touch $@

# What torch is taken from where it is not there yet; make bench goes without where that is not to be had. PyPI's brings
# CUDA; TORCH_INDEX= takes that.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
define torch
	@$(RUN) -c 'for name in "$(1)".split(): __import__(name)' 2>/dev/null || { \
		echo "$(1): $(if $(TORCH_INDEX),for the CPU alone (0.2 GB) from $(TORCH_INDEX); with CUDA: TORCH_INDEX=,of pip's \
			own index: with CUDA 5.7 GB)"; \
		$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(1) || { $(2); }; }
endef

$(VENV)/bench.stamp: pyproject.toml | $(VENV)/build.stamp
	$(call torch,torch,echo "no torch there: measured without it")
	$(PIP) install 'infiniop_cy[bench]'
	@touch $@

# All three in one command: each has to be built for the very torch beside it.
$(VENV)/bench-conv.stamp: $(VENV)/bench.stamp
	$(call torch,torch torchvision torchaudio,echo "not all three are there. Those of pip's own index: make bench-conv TORCH_INDEX="; exit 1)
	$(PIP) install 'infiniop_cy[bench-conv]'
	@touch $@

# The packages of an extra. infiniop_cy itself is there already, so this does not build it again.
$(VENV)/%.stamp: pyproject.toml | $(VENV)/build.stamp
	$(PIP) install 'infiniop_cy[$*]'
	@touch $@
