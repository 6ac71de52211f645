#!/usr/bin/env bash
# Disturbs a cluster of real processes under load: kills, pauses, stops and cuts nodes off
# from each other, in an arbitrary order, and compares every answer with what a single store
# could have given. Prints counts, and how long no write was acknowledged after each fault that
# costs the leader.
#
#   NEMESIS=30m NEMESIS_NODES=5 scripts/nemesis.sh
set -euo pipefail
cd "$(dirname "$0")/.."

export NEMESIS=${NEMESIS:-10m} NEMESIS_NODES=${NEMESIS_NODES:-3}

echo "nemesis: $NEMESIS_NODES nodes, for $NEMESIS"
go test -count=1 -timeout 12h -v -run 'TestNemesis|TestAPausedLeader' ./internal/torture | grep -vE '^(=== |PASS)'
