#!/usr/bin/env bash
# Disturbs a cluster of real processes under load: kills, pauses, stops and cuts nodes off
# from each other, adds, replaces and removes nodes, transfers the leadership and, as root,
# fills the disk of one node, which is a loop image; in an arbitrary order. Compares every
# answer with what a single store could have given. Prints counts, and how long no write was
# acknowledged after each fault that costs the leader. If it fails, it keeps what was seen and
# what the nodes left.
#
#   NEMESIS=30m NEMESIS_NODES=5 scripts/nemesis.sh
#   NEMESIS=2m NEMESIS_FAULTS="the leader" scripts/nemesis.sh    only faults with this in their names
set -euo pipefail
cd "$(dirname "$0")/.."

export NEMESIS=${NEMESIS:-10m} NEMESIS_NODES=${NEMESIS_NODES:-3}

. scripts/loop-disk.sh
if try_loop_disk "nemesis: a full disk" "${NEMESIS_DISK_SIZE:-1536M}" -m 0 -- fallocate; then
	export NEMESIS_DISK=$work/disk
fi
echo "nemesis: $NEMESIS_NODES nodes, for $NEMESIS"
kept=$(mktemp -d -t kvd-nemesis.XXXXXX)
if ! go test -count=1 -timeout 12h -v -artifacts -outputdir "$kept" -run 'TestNemesis|TestAPausedLeader' ./internal/torture | grep -vE '^(=== |PASS)'; then
	echo "nemesis: FAILED: the history, and the data and logs of the nodes, are in $kept; to judge the history again:" >&2
	echo "  KVD_HISTORY=\$(find $kept -name history.json) go test -count=1 -v -run TestASavedHistory ./internal/torture" >&2
	exit 1
fi
rm -rf "$kept"
