#!/usr/bin/env bash
# Repeatedly fills the ext4 file system of a real server, and prints counts: clients
# fill it, another process fills it, the server is restarted on the full disk, and
# everything is deleted. Needs root: the file system is a loop image.
#
#   scripts/fill.sh [flags of go test]      FILL_CYCLES=50 (default 6)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ]; then
	echo "fill: SKIPPED: only root may mount a file system" >&2
	exit 0
fi
for tool in mkfs.ext4 mount umount; do
	if ! command -v "$tool" >/dev/null; then
		echo "fill: SKIPPED: $tool is missing" >&2
		exit 0
	fi
done

work=$(mktemp -d)
cleanup() {
	umount "$work/disk" 2>/dev/null || true
	rm -rf "$work"
}
trap cleanup EXIT

truncate -s "${FILL_SIZE:-256M}" "$work/image"
mkfs.ext4 -q -m 0 "$work/image"
mkdir "$work/disk"
if ! mount -o loop "$work/image" "$work/disk"; then
	echo "fill: SKIPPED: loop images cannot be mounted here" >&2
	exit 0
fi
FILL_DIR=$work/disk FILL_CYCLES=${FILL_CYCLES:-6} go test -count=1 -timeout 60m -v -run ADiskThatFills "$@" ./internal/torture
