#!/usr/bin/env bash
# Runs every test of the module. The race detector needs a C compiler; without one
# the tests run all the same, and the script says so.
set -euo pipefail
cd "$(dirname "$0")/.."

race=()
if command -v "${CC:-gcc}" >/dev/null 2>&1 || command -v cc >/dev/null 2>&1; then
	export CGO_ENABLED=1
	race=(-race)
	echo "test: with the race detector"
else
	export CGO_ENABLED=0
	echo "test: WITHOUT the race detector: no C compiler found"
fi

# The binaries that people run are built as they are shipped: without C.
CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...
go vet ./...
go test "${race[@]}" -timeout 15m "$@" ./...
