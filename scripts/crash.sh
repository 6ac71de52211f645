#!/usr/bin/env bash
# Runs many crash tests: power-cut images of the engine in memory, then kill -9
# of the real process. Prints the counts.
#
#   CRASH_IMAGES=50000 KILL_CYCLES=100 scripts/crash.sh
set -euo pipefail
cd "$(dirname "$0")/.."

images=${CRASH_IMAGES:-50000}
cycles=${KILL_CYCLES:-100}

echo "crash: at least $images crash images"
KVD_CRASH_IMAGES=$images go test -count=1 -timeout 60m -v -run Crash ./internal/engine | grep -E '^ *(ok|FAIL|--- FAIL)|crash images'
echo "crash: $cycles kill -9 cycles"
KILL_CYCLES=$cycles go test -count=1 -timeout 60m -v -run Killed ./internal/torture | grep -E '^(ok|FAIL|--- FAIL)|kill -9'
