#!/usr/bin/env bash
# Builds the tests with each planted bug in turn and expects them to fail. A bug that no
# test detects is a gap in the tests, and fails this script. Takes about five minutes.
#
# A planted bug is a patch, scripts/planted/NN-name.patch. It begins with two lines:
#
#   Bug: what it does wrong.
#   Tests: the packages whose tests must fail, and flags of go test.
#
# The patch is applied to copies of the files, which go test -overlay uses in their place.
#
#   scripts/planted-bugs.sh [01 ...]        default: all of them
#   scripts/planted-bugs.sh --check         only check that all patches apply
set -euo pipefail
cd "$(dirname "$0")/.."
command -v git >/dev/null || { echo "planted: git is needed, to apply patches" >&2; exit 1; }

check=
if [ "${1:-}" = --check ]; then
	check=1
	shift
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# plant PATCH: writes the patched files and overlay.json below $scratch/NN-name.
plant() {
	local dir file sep=
	dir=$scratch/$(basename "$1" .patch)
	mkdir -p "$dir"
	for file in $(sed -n 's|^+++ b/||p' "$1"); do
		mkdir -p "$dir/$(dirname "$file")"
		cp "$file" "$dir/$file"
	done
	# Outside of a repository, where git apply is patch(1) that never guesses.
	(cd "$dir" && GIT_DIR=/nonexistent git apply -) <"$1" || {
		echo "planted: $1 does not apply any more: make it anew for the code as it is" >&2
		return 1
	}
	{
		printf '{"Replace":{'
		for file in $(sed -n 's|^+++ b/||p' "$1"); do
			printf '%s"%s":"%s"' "$sep" "$PWD/$file" "$dir/$file"
			sep=,
		done
		printf '}}\n'
	} >"$dir/overlay.json"
}

patches=()
for patch in scripts/planted/*.patch; do
	name=${patch##*/}
	[ $# = 0 ] || [[ " $* " == *" ${name%%-*} "* ]] || continue
	patches+=("$patch")
done

# One git checks all patches, each against the files as they are. It stops at the first that does
# not apply, so each is then planted, which names it.
if [ -n "$check" ] && [ "${#patches[@]}" -gt 0 ] && GIT_DIR=/nonexistent git apply --check "${patches[@]}" 2>/dev/null; then
	echo "planted: ${#patches[@]} patches apply"
	exit
fi

caught=0
missed=()
failed=
for patch in "${patches[@]}"; do
	name=$(basename "$patch" .patch)
	if ! plant "$patch"; then
		failed=1
		continue
	fi
	if [ -n "$check" ]; then
		caught=$((caught + 1))
		continue
	fi
	tests=$(sed -n 's/^Tests: //p' "$patch")
	# shellcheck disable=SC2086 # packages and flags are words
	out=$scratch/$name/output
	if go test -overlay "$scratch/$name/overlay.json" -count=1 -short -timeout 10m $tests >"$out" 2>&1; then
		missed+=("$name")
		echo "planted: $name LIVES: $tests passed"
	elif grep -qaE '^(--- FAIL|panic:|FAIL)' "$out" && ! grep -qaE 'build failed|setup failed' "$out"; then
		caught=$((caught + 1))
		echo "planted: $name caught by $(grep -aoE -m1 '^\s*--- FAIL: [^ ]+' "$out" | awk '{print $3}')"
	else
		cat "$out" >&2
		echo "planted: $name: the tests did not run" >&2
		failed=1
	fi
done

if [ -n "$check" ]; then
	echo "planted: $caught patches apply"
else
	echo "planted: $caught caught, ${#missed[@]} missed"
fi
[ -z "$failed" ] && [ "${#missed[@]}" -eq 0 ] && [ "$caught" -gt 0 ]
