#!/usr/bin/env bash
# Tests the memory limit: a server with each budget, under each kind of hostile or
# unlucky load, beside normal callers. Prints a table, with the stages that the slowest
# calls of normal callers spent their time in, and fails if the process ever used more
# than 1.25 times its budget, or if the 99th percentile latency of normal reads or writes
# exceeded MEMORY_P99 times that without the load. Repeats this in a control group with
# that limit, if one can be created. Takes about five minutes. The load runs with the policy
# SCHED_IDLE (chrt of util-linux), on what the server and the callers leave of the processors;
# the percentiles are significant only on an idle machine. The rows "no load, busy processors" are
# a control: the server has no load, and another process computes.
#
#   MEMORY_BUDGETS="64MiB 256MiB 1GiB" MEMORY_SECONDS=5 MEMORY_P99=3 scripts/memory.sh
set -euo pipefail
cd "$(dirname "$0")/.."

export MEMORY_BUDGETS=${MEMORY_BUDGETS:-64MiB 256MiB 1GiB}
export MEMORY_SECONDS=${MEMORY_SECONDS:-5}
export MEMORY_P99=${MEMORY_P99:-3}
MEMORY_TABLE=$(mktemp)
export MEMORY_TABLE
group=
trap 'rm -f "$MEMORY_TABLE"; if [ -n "$group" ]; then rmdir "$group"; fi' EXIT

# run_once prints the rows and the failures.
run_once() {
	local status=0
	: >"$MEMORY_TABLE"
	go test -count=1 -timeout 60m -run TestMemoryStaysWithinTheBudget ./internal/torture >"$MEMORY_TABLE.log" 2>&1 || status=$?
	cat "$MEMORY_TABLE"
	if [ $status -ne 0 ]; then
		grep -E '^ *(--- FAIL|FAIL|panic|Messages:|Error:)' "$MEMORY_TABLE.log" || cat "$MEMORY_TABLE.log"
	fi
	rm -f "$MEMORY_TABLE.log"
	return $status
}

failed=0
echo "memory: budgets $MEMORY_BUDGETS"
run_once || failed=1

parent=/sys/fs/cgroup
if [ -d $parent/memory ]; then parent=$parent/memory; fi # version 1
group=$parent/kvd-memory-$$
if mkdir "$group" 2>/dev/null && { [ -e "$group/memory.max" ] || [ -e "$group/memory.limit_in_bytes" ]; }; then
	echo "memory: the same in a control group, limited to each budget and a quarter"
	MEMORY_CGROUP=$group run_once || failed=1
else
	if [ -d "$group" ]; then rmdir "$group"; fi
	group=
	echo "memory: SKIPPED the run in a control group: none with a limit of memory can be made in $parent (it takes root)"
fi
exit $failed
