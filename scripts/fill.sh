#!/usr/bin/env bash
# Repeatedly fills the ext4 file system of a real server, and prints counts: clients
# fill it, another process fills it, the server is restarted on the full disk, and
# everything is deleted. Needs root: the file system is a loop image.
#
#   scripts/fill.sh [flags of go test]      FILL_CYCLES=50 (default 6)
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/loop-disk.sh
loop_disk fill "${FILL_SIZE:-256M}" -m 0 --
FILL_DIR=$work/disk FILL_CYCLES=${FILL_CYCLES:-6} go test -count=1 -timeout 60m -v -run ADiskThatFills "$@" ./internal/torture
