#!/usr/bin/env bash
# Does an idle store give its space back? Real servers are filled, emptied by deletes, a
# range delete and expiry, overwritten, or loaded beside snapshots, and then left alone
# for a minute, at a budget of 128 MiB and at the default one. Prints what their
# directories take, and fails if one takes more than 1.3 times the live bytes + 64 MiB.
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
