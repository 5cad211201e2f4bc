# Each target runs a script in tools/ or a CMake preset. PRESET=debug make build picks another preset.
PRESET ?= release
BUILD := $(if $(filter release,$(PRESET)),build,build-$(PRESET))
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)

.PHONY: help setup configure build all wheel demo test bench lint format fuzz clean

help: ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*##/\t/' | column -t -s "$$(printf '\t')"

setup: ## install what is missing (Debian packages, a .venv); changes nothing that is there
	@tools/setup

configure: setup
	@cmake --preset $(PRESET)

build: configure ## build/bin/seqfuse
	@cmake --build --preset $(PRESET) --target seqfuse

all: configure ## the same with tests and benchmarks
	@cmake --build --preset $(PRESET)

wheel: build ## dist/*.whl: operators, Python package and command line; PRESET=portable for other processors
	@tools/setup --wheel
	@tools/wheel $(BUILD)

demo: build ## train on the bundled MovieLens data and compare with baselines, about two minutes
	@tools/demo

test: all ## every test that needs no GPU and no data beyond the repository
	@tools/run_tests $(BUILD)

bench: all ## operator benchmarks and the comparison with plain PyTorch, on this machine
	@tools/bench $(BUILD)

lint: build ## clang-format, clang-tidy on changed code, layer order, links, ruff
	@tools/lint $(BUILD)

format: ## rewrite sources with clang-format and ruff
	@tools/lint --fix

fuzz: setup ## each parser for a minute under libFuzzer; FUZZ_SECONDS=600 for longer
	@tools/fuzz $(or $(FUZZ_SECONDS),60)

clean: ## remove build folders
	rm -rf build build-*
