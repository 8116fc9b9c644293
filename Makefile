# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

GOLANGCI_VERSION := v2.15.0
GOLANGCI := bin/golangci-lint-$(GOLANGCI_VERSION)
FUZZTIME ?= 10s
VERSION ?= $(shell git describe --tags --dirty --always 2>/dev/null || echo devel)

.PHONY: build test lint fuzz bench docs clean

build: ## the binary, in bin/
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.release=$(VERSION)" -o bin/overdue ./cmd/overdue

test: lint ## everything that has to pass
	go test -race -timeout 10m ./...

lint: $(GOLANGCI)
	@unformatted="$$(gofmt -l .)"; \
	if [ -n "$$unformatted" ]; then echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	$(GOLANGCI) run ./...

$(GOLANGCI):
	GOBIN="$(CURDIR)/bin" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv bin/golangci-lint $@

fuzz: ## every fuzz target for FUZZTIME, one after the other
	@for pkg in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' "$$pkg" | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$pkg"; \
		done; \
	done

bench: ## every benchmark of the packages
	go test -run '^$$' -bench . -benchmem ./...

docs: ## what is generated from code
	go test ./cmd/overdue -run TestConfigurationDocIsTheTable -update

clean:
	rm -rf bin
