# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
VALE_VERSION := v3.7.1
VALE := bin/vale-$(VALE_VERSION)
GOTESTSUM_VERSION := v1.13.0
GOTESTSUM := bin/gotestsum-$(GOTESTSUM_VERSION)
# From 2.16 on it needs a module that not every module proxy serves: docs/decisions/0062.
GORELEASER_VERSION := v2.15.0
GORELEASER := $(CURDIR)/bin/goreleaser-$(GORELEASER_VERSION)
GREMLINS_VERSION := v0.6.0
GREMLINS := bin/gremlins-$(GREMLINS_VERSION)
FUZZTIME ?= 10s
ROUNDS ?= 1
VERSION ?= $(shell git describe --tags --dirty --always 2>/dev/null || echo devel)
# The address of this checkout's pages, such as https://example.com/overdue/blob/v1.0.0: help, errors and alerts link them there.
# Without it they name the files of the package, and packages have no homepage.
DOCS_BASE ?=

# Tests, compilers and linters make garbage faster than anything that they keep. The scenes run with Go's own setting, since they
# measure programs.
export GOGC := 400

.PHONY: build image push check test compile test-packages test-scenes deploy conformance sdks lint fuzz soak mutate bench peers pictures docs man pages release release-check inject-check changelog release-notes clean

BINARY ?= bin/overdue

build: ## the binary, in bin/
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X overdue/internal/version.release=$(VERSION) -X overdue/internal/version.docsBase=$(DOCS_BASE)" -o $(BINARY) ./cmd/overdue

IMAGE ?= overdue:latest
ENGINE ?= docker
ARCH ?= $(shell go env GOARCH)

image: ## the images of this checkout for ARCH, loaded into ENGINE as IMAGE and IMAGE-emulator; ENGINE= only writes bin/image/overdue.tar
	@rm -rf bin/image # of another architecture
	$(MAKE) --no-print-directory build GOOS=linux GOARCH="$(ARCH)" BINARY=bin/image/overdue_linux_$(ARCH)/overdue
	cd deploy/release && go run . describe 0.0.0-dev "$(CURDIR)/bin/image/overdue_linux_$(ARCH)/overdue"
	cd deploy/release && go run . image -binaries "$(CURDIR)/bin/image" -version 0.0.0-dev -commit "$$(git rev-parse HEAD)" \
		-time "$$(git show -s --format=%ct)" -loadable "$(CURDIR)/bin/image/overdue.tar" -name "$(IMAGE)"
	$(if $(ENGINE),$(ENGINE) load --input bin/image/overdue.tar)

push: ## the images of the release in bin/release to a registry, as IMAGE-emulator and IMAGE; `go tool crane auth login` in deploy/release logs in
	@for kind in -emulator ""; do \
		rm -rf bin/layout && mkdir -p bin/layout; \
		tar -xf bin/release/overdue$${kind}_*_oci.tar -C bin/layout; \
		(cd deploy/release && go tool crane push "$(CURDIR)/bin/layout" "$(IMAGE)$$kind"); \
	done

# These tests run programs that they build, or files of another module. Neither is an input of the test cache, so they
# always run. test/e2e is among the packages under the race detector, where it runs none.
SCENES := ./test/sdk/... ./test/foreign/... ./test/web/... ./deploy/...
PACKAGES = $$(comm -23 <(go list ./... | sort) <(go list $(SCENES) ./test/conformance | sort))
# Those of which some tests are smaller, or left out, while the race detector watches.
SMALLER = $$(grep -rlE 'racetest\.|[iI]nModes' --include='*_test.go' alert cmd internal monitor proxy scheduler | xargs -n 1 dirname | sort -u | sed 's|^|./|')
# It prints the packages, then what was skipped, and last what failed.
RUN := $(GOTESTSUM) --format-hide-empty-pkg --
# One processor a test program: with two, timers of fake time that end at once crash the race detector (https://go.dev/issue/78156).
RACE := -race -cpu 1 -timeout 20m

check: lint $(GOTESTSUM) ## the inner loop: lint, and all tests that need nothing installed
	$(RUN) -short -vet=off ./...

test: ## everything that has to pass
	@$(MAKE) --no-print-directory -j4 --output-sync=line lint sdks compile $(GOTESTSUM)
	@$(MAKE) --no-print-directory -j3 --output-sync=target test-packages test-scenes

# Packages and scenes need the same packages compiled, and would do it at the same time. Nothing links here: that is not kept.
compile:
	@go list -race -test -deps -export ./... >/dev/null
	@CGO_ENABLED=0 go list -trimpath -deps -export ./cmd/overdue >/dev/null # as releases are built, and what is upgraded from

# The scenes mostly wait, the packages mostly compute, so each has one of two cores to itself. Packages that take longest come first.
test-packages:
	$(RUN) $(RACE) -vet=off -p 2 ./monitor ./test/e2e $(PACKAGES)

# Programs are measured with Go's own setting of the garbage collector.
test-scenes:
	GOGC=100 $(RUN) $(RACE) -vet=off -count=1 -p 2 $(SCENES)
	GOGC=100 $(RUN) -vet=off -count=1 -parallel 4 ./test/e2e
	$(RUN) -vet=off -p 2 $(SMALLER)
	$(MAKE) --no-print-directory deploy conformance # at the same time, for conformance waits, mostly

deploy: ## what is in deploy/, rendered, decoded and run, the image with its licences, and Dapr's component; modules of their own
	cd deploy/check && go test -vet=off -count=1 -timeout 10m ./...
	$(MAKE) --no-print-directory image ENGINE=
	cd deploy/release && go test -short -vet=off -count=1 -timeout 15m ./... # without goreleaser, which takes minutes to compile
	cd test/dapr && go test -vet=off -count=1 -timeout 10m ./...

RELEASE ?=
SIGN ?=
release: $(GORELEASER) ## the artefacts of a release in bin/release; RELEASE=0.1.0 names it when no tag does, SIGN=1 has cosign sign the checksums
	@version="$(RELEASE)"; \
	if [ -z "$$version" ]; then version="$$(git describe --tags --exact-match --match 'v*' 2>/dev/null | sed 's/^v//' || true)"; fi; \
	if [ -z "$$version" ]; then version="0.0.0-dev+$$(git rev-parse --short=12 HEAD)"; fi; \
	RELEASE="$$version" DOCS_BASE="$(DOCS_BASE)" COMMIT="$$(git rev-parse HEAD)" COMMIT_SECONDS="$$(git show -s --format=%ct)" \
	COMMIT_DATE="$$(TZ=UTC git show -s --date=iso-strict-local --format=%cd | sed 's/+00:00$$/Z/')" \
	$(GORELEASER) release --snapshot --clean $(if $(SIGN),,--skip=sign)

$(GORELEASER):
	CGO_ENABLED=0 GOBIN="$(CURDIR)/bin" go install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)
	mv bin/goreleaser $@

pages: man build ## what a release has beside the binary: man pages and shell completion, in bin/
	@rm -rf bin/completion && mkdir -p bin/completion
	bin/overdue completion bash >bin/completion/overdue.bash
	bin/overdue completion zsh >bin/completion/_overdue
	bin/overdue completion fish >bin/completion/overdue.fish
	bin/overdue completion powershell >bin/completion/overdue.ps1

release-check: $(GORELEASER) ## all platforms of a release, built twice on two paths and compared; installs what this machine can install
	cd deploy/release && OVERDUE_RELEASE=full go test -vet=off -count=1 -timeout 60m -v ./...

inject-check: ## a real API server of Kubernetes takes the manifests of inject, the chart and Kustomize; builds it, for ten minutes the first time
	cd deploy/check && go test -tags cluster -vet=off -count=1 -timeout 60m -v -run TestARealCluster .

changelog: ## what is unreleased in CHANGELOG.md becomes the section of RELEASE
	cd deploy/release && go run . notes -version "$(RELEASE)" -turn

release-notes: ## the section of RELEASE in CHANGELOG.md
	@cd deploy/release && go run . notes -version "$(RELEASE)"

sdks: ## what the scenarios with other SDKs and other brokers need; as root, Debian packages too
	test/sdk/install.sh --tools

conformance: ## the live tests of the Go SDK against the embedded broker, directly and through the relay
	go test -vet=off -count=1 -timeout 20m -parallel 8 ./test/conformance

lint: $(GOLANGCI) prose ## gofmt, go vet and the other linters, and the words of prose
	@unformatted="$$(gofmt -l .)"; \
	if [ -n "$$unformatted" ]; then echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; fi
	$(GOLANGCI) run ./... # go vet is one of its linters
	cd deploy/check && "$(CURDIR)/$(GOLANGCI)" run --config "$(CURDIR)/.golangci.yaml" --build-tags cluster ./...
	cd deploy/release && "$(CURDIR)/$(GOLANGCI)" run --config "$(CURDIR)/.golangci.yaml" ./...
	cd test/dapr && "$(CURDIR)/$(GOLANGCI)" run --config "$(CURDIR)/.golangci.yaml" ./...

$(GOLANGCI):
	GOBIN="$(CURDIR)/bin" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

# Vale reads the pages that people write, not those that are generated. Of the Go code it reads all
# comments, those of tests included, as Markdown: its rules for sentences do not see comments otherwise.
PROSE := README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CODE_OF_CONDUCT.md test/bench/README.md docs/README.md docs/start docs/operate docs/broker docs/decisions docs/reference/companion.md docs/reference/webhooks.md \
	$(addprefix docs/internals/,broker.md monitor.md relay.md scheduler.md servicebus.md) \
	deploy/README.md deploy/helm/overdue/README.md $(wildcard examples/README.md examples/*/README.md)
prose: $(VALE) ## the words and sentences of pages and comments, by .vale/styles/Overdue
	$(VALE) $(PROSE)
	@rm -rf bin/comments && mkdir -p bin/comments
	@find * -name '*.go' -not -path '*/node_modules/*' -print0 | xargs -0 awk -v out=bin/comments -f .vale/comments.awk
	@$(VALE) --output=line bin/comments > bin/comments.txt || { sed 's|^bin/comments/||; s|%|/|g; s|\.go\.md:|.go:|' bin/comments.txt; exit 1; }
	@# What is unreleased, and the newest release: older ones stay as they were published.
	awk '/^## [^U]/ {n++} /^## / {on = n < 2} on' CHANGELOG.md | $(VALE) --ext=.md

$(VALE):
	GOBIN="$(CURDIR)/bin" go install github.com/errata-ai/vale/v3/cmd/vale@$(VALE_VERSION)
	mv bin/vale $@

$(GOTESTSUM):
	GOBIN="$(CURDIR)/bin" go install gotest.tools/gotestsum@$(GOTESTSUM_VERSION)
	mv bin/gotestsum $@

fuzz: ## every fuzz target for FUZZTIME, one after the other
	@# go test minimizes an input that is new, for a minute if it may. One that is slow is in the midst of that when
	@# FUZZTIME is over, and the target fails with "context deadline exceeded". So one try has to do.
	@for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x "$$pkg"; \
		done; \
	done

soak: ## the tests with other seeds than usual, ROUNDS times
	@for i in $$(seq $(ROUNDS)); do OVERDUE_SEED=random go test -race -count 1 -timeout 30m ./...; done

MUTATED ?= ./internal/servicebus/sas ./scheduler/index ./scheduler/journal

mutate: $(GREMLINS) ## makes the code of the packages MUTATED wrong, one place at a time, and shows what no test notices
	@for pkg in $(MUTATED); do echo "$$pkg"; $(GREMLINS) unleash --workers 1 --timeout-coefficient 10 --output-statuses lct "$$pkg"; done

$(GREMLINS):
	GOBIN="$(CURDIR)/bin" go install github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION)
	mv bin/gremlins $@

bench: ## every benchmark of the packages
	go test -run '^$$' -bench . -benchmem ./...

PEERS ?= 100000

peers: $(GOLANGCI) ## the work of `overdue bench expire` on other timers, stores and brokers; as root, Debian packages too
	test/sdk/install.sh --tools postgresql >/dev/null
	cd test/bench/peers && "$(CURDIR)/$(GOLANGCI)" run --config "$(CURDIR)/.golangci.yaml" ./...
	cd test/bench/peers && go test -count=1 -v ./... && go run . -n $(PEERS) -json ../peers.json
	go test ./test/bench -run TestThePageAndThePictureOfPeers -update

pictures: build ## the pictures of the demo, from a run of the built program, and of the dashboards, from a run of five minutes
	go test -vet=off -count=1 ./test/bench -run TestThePicturesOfTheDemo -update -record "$(CURDIR)/bin/overdue"
	go test -vet=off -count=1 -timeout 20m ./deploy -run TestPicturesShowEveryPanel -pictures

docs: ## what is generated from code
	go test ./internal/config -run TestReferencePagesAreFresh -update
	go test ./cmd/overdue -run TestGeneratedPagesAreFresh -update
	go test ./internal/app -run TestTheMetricsPageIsFresh -update
	go test ./deploy -run TestDashboardsAreFresh -update
	go test ./internal/operator/verify -run TestPagesShowTheAssumptions -update
	go test ./internal/operator/plan -run TestPicturesAreFresh -update
	go test ./test/bench -run 'TestPagesQuoteTheFiguresOfTheResults|TestThePageAndThePictureOfPeers|TestThePicturesOfTheDemo' -update
	cp deploy/prometheus/overdue.rules.yml deploy/prometheus/alertmanager.yml deploy/helm/overdue/files/

man: ## the man pages, in bin/man
	@rm -rf bin/man
	go test -trimpath -vet=off -count=1 -ldflags "-X overdue/internal/version.docsBase=$(or $(DOCS_BASE),/usr/share/doc/overdue)" ./cmd/overdue -run TestManPagesAreMade -man "$(CURDIR)/bin/man"

clean:
	rm -rf bin
