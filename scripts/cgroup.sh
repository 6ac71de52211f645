#!/usr/bin/env bash
# Runs the real server in a control group with much more data than memory: it must take its
# budget from the group, and must never be killed for its memory, during a load, gets, scans,
# large writes, and clients that do not read their answers, with SIGHUP in between. Needs
# root, disk space for three times the data, and some minutes. Data lies below TMPDIR.
#
#   CGROUP_LIMIT=256MiB CGROUP_DATA=2GiB scripts/cgroup.sh
set -euo pipefail
cd "$(dirname "$0")/.."

export CGROUP_LIMIT=${CGROUP_LIMIT:-256MiB} CGROUP_DATA=${CGROUP_DATA:-2GiB}
parent=/sys/fs/cgroup
if [ -d $parent/memory ]; then parent=$parent/memory; fi # version 1
export CGROUP=$parent/kvd-cgroup-$$
if ! mkdir "$CGROUP" 2>/dev/null; then
	echo "cgroup: SKIPPED: no control group can be made in $parent (it takes root)" >&2
	exit 0
fi
trap 'rmdir "$CGROUP"' EXIT
if [ ! -e "$CGROUP/memory.max" ] && [ ! -e "$CGROUP/memory.limit_in_bytes" ]; then
	echo "cgroup: SKIPPED: groups in $parent have no limit of memory" >&2
	exit 0
fi
echo "cgroup: $CGROUP_DATA of data in a group of $CGROUP_LIMIT"
go test -count=1 -timeout 60m -v -run TestAServerInASmallControlGroup "$@" ./internal/torture
