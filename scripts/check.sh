#!/usr/bin/env bash
# Runs the checks that a change must pass before it is committed.
set -euo pipefail
cd "$(dirname "$0")/.."

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
gosec=github.com/securego/gosec/v2/cmd/gosec@v2.30.0
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

echo "check: gosec"
# Left out are rules whose findings are all without effect; single places have a #nosec with the reason.
# G115, conversions of integers: decoders check lengths before they convert them, and are fuzzed.
# G404, math/rand: the named packages use it for delays, samples and ids of requests. Secrets come
#   from crypto/rand.
# All rules for benchmarks, scripts, and the packages that only they use: these open files and start
#   programs that their user names, and write reports that every user may read.
tools='(cmd/kvbench|scripts|internal/(chart|experiment|loadgen|report|results|torture|workload)|pkg/kvd/kvdtest)/.*:*'
if go run "$gosec" -version >/dev/null 2>&1; then
	go run "$gosec" -quiet -exclude-generated -exclude-dir=bench -exclude=G115 \
		-exclude-rules="$tools;(internal/(admission|engine|service)|pkg/kvd)/.*:G404" ./...
else
	echo "check: SKIPPED gosec: NOT CHECKED: $gosec cannot be downloaded and built"
fi

echo "check: generated code is fresh"
./scripts/proto.sh --check

echo "check: known vulnerabilities"
if [ -n "${VULNDB:-}" ]; then
	go run "$govulncheck" -db "$VULNDB" ./...
elif out=$(go run "$govulncheck" ./... 2>&1); then
	echo "$out" | tail -1
elif grep -q "fetching vulnerabilities" <<<"$out"; then
	echo "check: SKIPPED govulncheck: NOT CHECKED: its database cannot be reached; set VULNDB to a copy of it"
else
	echo "$out" >&2
	exit 1
fi

./scripts/test.sh
./scripts/planted-bugs.sh
