#!/usr/bin/env bash
# Runs every test of the module, and those of the benchmarks in bench/, a module of
# its own. Under the race detector some tests take a sample of what they repeat, or are
# left out (internal/testsize); these tests then run whole without it. The race detector
# needs a C compiler; without one all tests run whole, and the script says so. If the
# modules that bench/ depends on cannot be downloaded, the script says that it skipped
# bench/.
set -euo pipefail
cd "$(dirname "$0")/.."

# All but the race detector is built as the binaries are shipped, without cgo, so that
# packages are built once for the binaries, vet and the tests without the race detector.
export CGO_ENABLED=0
race=()
cgo=0
if command -v "${CC:-gcc}" >/dev/null 2>&1 || command -v cc >/dev/null 2>&1; then
	cgo=1
	race=(-race)
	# A process under the race detector sleeps before it exits, by default for a second, so
	# that reports of other goroutines are written out. A tenth of that is enough for them.
	export GORACE="atexit_sleep_ms=100 ${GORACE:-}"
	echo "test: with the race detector"
else
	echo "test: WITHOUT the race detector: no C compiler found"
fi

# Without the directory's path in them, packages that are built in one clone need not be built
# again in another one. Linking a test takes two thirds more time with debug information, which
# tests do not use.
export GOFLAGS="${GOFLAGS:-} -trimpath -ldflags=-w"

go build -o bin/ ./cmd/...
# go test would vet a part of that again, in each of its passes: hence its -vet=off.
go vet ./...

echo "test: the client and its commands compile for darwin and windows"
for os in darwin windows; do
	GOOS=$os go vet ./pkg/...
	GOOS=$os go build -ldflags="-s -w" -o /dev/null ./cmd/kvd # debug information takes a third of the time
done

CGO_ENABLED=$cgo go test "${race[@]}" -vet=off -timeout 30m "$@" ./...

# Tests that took a sample under the race detector run again. A -run in the arguments wins.
if [ ${#race[@]} -gt 0 ]; then
	echo "test: whole, without the race detector: tests that took a sample"
	reduced=$(go run ./internal/testsize/reduced)
	{ read -r tests; read -r packages; } <<<"$reduced"
	# shellcheck disable=SC2086 # packages are words
	go test -vet=off -timeout 30m -run "$tests" "$@" $packages
fi

echo "test: bench"
cd bench
export CGO_ENABLED=$cgo # as the benchmarks are built
if missing=$(go list -deps -test ./... 2>&1 >/dev/null); then
	go vet ./...
	go test -vet=off -timeout 30m "$@" ./...
elif grep -qE 'GOPROXY=off|dial tcp|no such host|connection (refused|reset)|timeout|EOF|: 5[0-9][0-9] ' <<<"$missing"; then
	echo "test: SKIPPED bench: NOT BUILT, NOT VETTED, NOT TESTED: modules that it depends on cannot be downloaded:" >&2
	tail -1 <<<"$missing" >&2
else
	echo "$missing" >&2
	exit 1
fi
