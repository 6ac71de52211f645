#!/usr/bin/env bash
# Runs the real server on an ext4 file system that is frozen while clients write
# to it. Needs root: the file system is a loop image, frozen by fsfreeze(8).
#
#   scripts/freeze.sh [flags of go test]
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "freeze: SKIPPED: only root may mount and freeze a file system" >&2
	exit 0
fi
for tool in mkfs.ext4 mount umount fsfreeze; do
	if ! command -v "$tool" >/dev/null; then
		echo "freeze: SKIPPED: $tool is missing" >&2
		exit 0
	fi
done

work=$(mktemp -d)
cleanup() {
	fsfreeze -u "$work/disk" 2>/dev/null || true # a test that died leaves it frozen
	umount "$work/disk" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

truncate -s 2G "$work/image"
mkfs.ext4 -q "$work/image"
mkdir "$work/disk"
if ! mount -o loop "$work/image" "$work/disk"; then
	echo "freeze: SKIPPED: loop images cannot be mounted here" >&2
	exit 0
fi
FREEZE_DIR=$work/disk go test -count=1 -timeout 10m -v -run Frozen "$@" ./internal/torture
