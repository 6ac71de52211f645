# To be sourced by scripts that need a file system of their own:
#
#   loop_disk NAME SIZE [flags of mkfs.ext4] -- [tools]
#
# makes an ext4 file system of that size in a loop image and mounts it at $work/disk; it
# is unmounted and removed when the script exits. If that cannot be done here it says so,
# as NAME, and ends the script with 0. Needs root. try_loop_disk returns 1 instead.
# shellcheck shell=bash

loop_disk() { try_loop_disk "$@" || exit 0; }

try_loop_disk() {
	local name=$1 size=$2 flags=() tool
	shift 2
	while [ "$1" != -- ]; do
		flags+=("$1")
		shift
	done
	shift
	if [ "$(id -u)" -ne 0 ]; then
		echo "$name: SKIPPED: only root may mount a file system" >&2
		return 1
	fi
	for tool in mkfs.ext4 mount umount "$@"; do
		if ! command -v "$tool" >/dev/null; then
			echo "$name: SKIPPED: $tool is missing" >&2
			return 1
		fi
	done
	work=$(mktemp -d)
	trap remove_loop_disk EXIT
	truncate -s "$size" "$work/image"
	mkfs.ext4 -q ${flags[@]+"${flags[@]}"} "$work/image" || return 1
	mkdir "$work/disk"
	if ! mount -o loop "$work/image" "$work/disk"; then
		echo "$name: SKIPPED: loop images cannot be mounted here" >&2
		return 1
	fi
}

remove_loop_disk() {
	if command -v fsfreeze >/dev/null; then
		fsfreeze -u "$work/disk" 2>/dev/null || true # a test that died leaves it frozen
	fi
	umount "$work/disk" 2>/dev/null || true
	rm -rf "$work"
}
