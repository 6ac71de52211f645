#!/usr/bin/env bash
# Runs the checks that a change must pass before it is committed.
set -euo pipefail
cd "$(dirname "$0")/.."

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
govulncheck=golang.org/x/vuln/cmd/govulncheck@v1.8.0

echo "check: gofmt"
unformatted=$(gofmt -l bench cmd internal pkg scripts)
if [ -n "$unformatted" ]; then
	echo "not formatted: $unformatted" >&2
	exit 1
fi

echo "check: go.mod is tidy"
go mod tidy -diff

echo "check: staticcheck"
go run "$staticcheck" ./...

echo "check: generated code is fresh"
./scripts/proto.sh --check

echo "check: known vulnerabilities"
if [ -n "${VULNDB:-}" ]; then
	go run "$govulncheck" -db "$VULNDB" ./...
elif out=$(go run "$govulncheck" ./... 2>&1); then
	echo "$out" | tail -1
elif grep -q "fetching vulnerabilities" <<<"$out"; then
	echo "check: SKIPPED govulncheck: its database cannot be reached; set VULNDB to a copy of it"
else
	echo "$out" >&2
	exit 1
fi

./scripts/test.sh
./scripts/planted-bugs.sh
