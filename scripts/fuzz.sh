#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME each (default 20s).
set -euo pipefail
cd "$(dirname "$0")/.."

time=${FUZZTIME:-20s}
count=0
while IFS=: read -r file target; do
	pkg=./$(dirname "$file")
	echo "fuzz: $pkg $target for $time"
	# An interesting input may be a whole file: minimizing it would take all the time.
	go test -run='^$' -fuzz="^${target}\$" -fuzztime="$time" -fuzzminimizetime=10x -parallel=2 "$pkg"
	count=$((count + 1))
done < <(grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' cmd internal pkg | sed 's/func //' | sort -u)

if [ "$count" -eq 0 ]; then
	echo "fuzz: found no target" >&2
	exit 1
fi
echo "fuzz: $count targets, no failure"
