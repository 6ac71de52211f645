#!/usr/bin/env bash
# Tests strict serializability: 16 clients run transactions against the real process,
# which is killed and paused meanwhile; the test replays all of them in the
# order of their versions. Prints the counts. Takes about five minutes.
#
#   SERIAL_TXNS=1000000 scripts/serializable.sh
set -euo pipefail
cd "$(dirname "$0")/.."

export SERIAL_TXNS=${SERIAL_TXNS:-1000000}

echo "serializable: $SERIAL_TXNS transactions"
go test -count=1 -timeout 6h -v -run StrictlySerializable ./internal/torture | grep -vE '^(=== |PASS)'
