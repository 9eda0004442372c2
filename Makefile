# Pinfold's entry points. `make help` lists them; the work is in scripts/.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

export CGO_ENABLED = 0

build_flags = -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

.DEFAULT_GOAL := build
.NOTPARALLEL: # what a target needs is done before it, in the order written
.PHONY: help build demo test test-machines soak check bench bench-docs setup clean FORCE

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

build: bin/pinfold ## bin/pinfold (all is inside: one file is enough), with bin/pinfold-whole, bin/pinfold-agent and bin/pinfold-warden

bin/pinfold-agent: FORCE
	$(GO) build $(build_flags) -o $@ ./cmd/pinfold-agent

bin/pinfold-warden: FORCE
	$(GO) build $(build_flags) -o $@ ./cmd/pinfold-warden

# Everything, with the agent and the warden inside.
bin/pinfold-whole: bin/pinfold-agent bin/pinfold-warden FORCE
	@for f in pinfold-agent pinfold-warden; do cmp -s bin/$$f internal/agentbin/$$f || cp bin/$$f internal/agentbin/$$f; done
	$(GO) build $(build_flags) -tags embedagent -o $@ ./cmd/pinfold

# What is started often, with the agent and the whole program inside.
bin/pinfold: bin/pinfold-whole FORCE
	@cmp -s $< internal/wholebin/pinfold-whole || cp $< internal/wholebin/pinfold-whole
	$(GO) build $(build_flags) -tags embedagent,lean -o $@ ./cmd/pinfold

demo: ## analyse a real data set in a sandbox; brings back out/co2.svg
	@scripts/demo

setup: ## install what the tests need (root), or say what is missing
	@scripts/setup

test: setup ## set-up, check, then every test
	@scripts/test

test-machines: setup ## Debian 12 and 13 in virtual machines (x86-64, arm64), every Python of Debian's, every client in emulated sandboxes (an hour)
	PINFOLD_TEST_MACHINES=1 PINFOLD_TEST_ALL=1 $(GO) test -count=1 -v -timeout 60m -run '^Test(Kernels|Debian13|Debian13ARM64|Pythons)$$' ./test/kernels
	PINFOLD_TEST_MACHINES=1 PINFOLD_TEST_ALL=1 $(GO) test -count=1 -v -timeout 60m -run '^Test(QEMU|PackagesOfDrivers)$$' ./test/network

soak: build setup ## thousands of sandboxes, forks and faults, and 5,000 that live at once (root; ten minutes)
	@scripts/soak

check: ## format, lint, architecture, generated files, builds, modules
	@scripts/check

bench: build ## measure beside python3, bubblewrap, runc and Docker
	bin/pinfold bench

bench-docs: build ## the same, into docs/benchmarks.md and docs/charts
	bin/pinfold bench --long --markdown docs/benchmarks.md --svg docs/charts --json docs/benchmarks.json

clean: ## remove what was built
	rm -rf bin out internal/agentbin/pinfold-agent internal/agentbin/pinfold-warden internal/wholebin/pinfold-whole
