#!/usr/bin/env bash
# Runs the real server on an ext4 file system that is frozen while clients write
# to it. Needs root: the file system is a loop image, frozen by fsfreeze(8).
#
#   scripts/freeze.sh [flags of go test]
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/loop-disk.sh
loop_disk freeze 2G -- fsfreeze
FREEZE_DIR=$work/disk go test -count=1 -timeout 10m -v -run Frozen "$@" ./internal/torture
