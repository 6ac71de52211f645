#!/usr/bin/env bash
# Finds tests that fail by chance or under load: runs `make test` many times, several at
# once, each in a fresh clone of HEAD. The first LOADED runs share the processors with busy
# loops. Prints a line per run, keeps the output of runs that fail, and fails if one did.
# Takes about two hours on two processors.
#
#   RUNS=20 LOADED=5 AT_ONCE=5 BUSY_LOOPS=4 scripts/repeat-tests.sh
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-20} loaded=${LOADED:-5} at_once=${AT_ONCE:-5} busy_loops=${BUSY_LOOPS:-4}

repository=$PWD
commit=$(git rev-parse HEAD)
work=$(mktemp -d "${TMPDIR:-/tmp}/kvd-repeat.XXXXXX")
export repository commit work
export GOFLAGS="-count=1 ${GOFLAGS:-}"

# run_suite N prints one line about run N, and fails if the run did.
run_suite() {
	local clone=$work/$1 output=$work/$1.out took result=ok
	local TIMEFORMAT='%0R s, %0U + %0S s of the processor'
	git clone -q --no-checkout "$repository" "$clone"
	git -C "$clone" checkout -q "$commit"
	took=$({ time make -C "$clone" test >"$output" 2>&1; } 2>&1) || result=FAILED
	took="$(grep -c '^ok' "$output") packages passed, $took"
	rm -rf "$clone"
	if [ $result = ok ]; then
		echo "repeat: run $1: ok, $took"
		rm "$output"
		return
	fi
	# One echo, as other runs print meanwhile.
	echo "repeat: run $1: FAILED, $took
$(grep -E '^ *--- FAIL|^FAIL|^panic:|WARNING: DATA RACE' "$output" || tail -5 "$output")
repeat: all of its output: $output"
	return 1
}
export -f run_suite

# run_suites FIRST LAST
run_suites() {
	seq "$1" "$2" | xargs -r -n 1 -P "$at_once" bash -c 'run_suite "$1"' run_suite
}

busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true; rmdir "$work" 2>/dev/null || true' EXIT

echo "repeat: $runs runs of make test at $commit, $at_once at once, the first $loaded beside $busy_loops busy loops"
status=0
for ((i = 0; i < busy_loops; i++)); do
	while :; do :; done &
	busy+=($!)
done
run_suites 1 "$loaded" || status=1
# wait hides bash's message that they were killed.
kill "${busy[@]}" 2>/dev/null && wait "${busy[@]}" 2>/dev/null || true
busy=()
run_suites $((loaded + 1)) "$runs" || status=1
exit $status
