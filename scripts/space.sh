#!/usr/bin/env bash
# Tests that an idle store reclaims disk space. Real servers are filled, emptied by
# deletes, a range delete and expiry, overwritten, or loaded beside snapshots, and then
# idle for a minute, with a budget of 128 MiB and the default one. Prints the size of their
# directories, and fails if one exceeds 1.3 times the live bytes + 64 MiB.
#
#   SPACE_MIB=480 scripts/space.sh [flags of go test]
set -euo pipefail
cd "$(dirname "$0")/.."

export SPACE_MIB=${SPACE_MIB:-480}
status=0
for memory in 128MiB auto; do
	echo "space: $SPACE_MIB MiB, --memory $memory"
	SPACE_MEMORY=$memory go test -count=1 -timeout 60m -v -run IdleStoresGiveSpaceBack "$@" ./internal/torture |
		grep -E '^space:|^ *(ok|FAIL|--- FAIL)|Error' || status=1
done
exit $status
