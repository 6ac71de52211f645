#!/usr/bin/env bash
# Builds the tests with each planted bug in turn and expects them to fail. A bug
# that no test notices is a hole in the tests, and fails this script.
#
#   scripts/planted-bugs.sh [bug02 ...]     default: all of them
set -euo pipefail
cd "$(dirname "$0")/.."

# tag: packages whose tests must notice, and flags
bugs=$(sed -n 's/^#: //p' "$0")
#: bug01 ./internal/wal
#: bug02 ./internal/wal
#: bug03 ./internal/wal
#: bug04 ./internal/wal
#: bug05 ./internal/vfs
#: bug06 ./internal/manifest
#: bug07 ./internal/engine
#: bug08 ./internal/wal
#: bug09 ./internal/wal
#: bug10 ./internal/wal
#: bug11 ./internal/compaction
#: bug12 ./internal/compaction
#: bug13 ./internal/mergeiter
#: bug14 ./internal/wal
#: bug15 ./internal/manifest
#: bug16 -failfast ./internal/engine
#: bug17 -failfast ./internal/engine
#: bug18 -run TestAnswersDoNotWait ./internal/engine
#: bug19 ./internal/sstable
#: bug20 ./internal/keyhash
#: bug21 ./internal/valuefile
#: bug22 -run TestTheRole ./internal/partition
#: bug23 -run TestGuards ./internal/engine
#: bug24 -run PowerCuts ./internal/engine
#: bug28 -run TestAPanicOfTheEngine ./internal/daemon
#: bug29 ./internal/vfs

want=${*:-}
caught=0
missed=()
while read -r tag packages; do
	if [ -n "$want" ] && [[ " $want " != *" $tag "* ]]; then
		continue
	fi
	# shellcheck disable=SC2086 # packages are words
	if out=$(go test -tags "$tag" -count=1 -short -timeout 10m $packages 2>&1); then
		missed+=("$tag")
		echo "planted: $tag LIVES: $packages passed"
	elif grep -qE '^(--- FAIL|panic:|FAIL)' <<<"$out" && ! grep -q 'build failed' <<<"$out"; then
		caught=$((caught + 1))
		echo "planted: $tag caught by $(grep -oE -m1 '^\s*--- FAIL: [^ ]+' <<<"$out" | awk '{print $3}')"
	else
		echo "$out" >&2
		echo "planted: $tag: the tests did not run" >&2
		exit 1
	fi
done <<<"$bugs"

echo "planted: $caught caught, ${#missed[@]} missed"
[ "${#missed[@]}" -eq 0 ] && [ "$caught" -gt 0 ]
