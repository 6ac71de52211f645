#!/usr/bin/env bash
# Builds kvd and kvbench for each platform into bin/release, with checksums and a bill of
# materials (SPDX in JSON) of each binary. It builds everything twice, in two directories and
# with two empty caches, and fails if a byte differs.
#
#   VERSION=v1.2.3 scripts/release.sh
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:?set VERSION, such as v1.2.3}
[ -z "$(git status --porcelain)" ] || { echo "release: there are uncommitted changes" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for round in 1 2; do
	git clone -q . "$work/source$round"
	git -C "$work/source$round" tag -f "$version" >/dev/null # which the Go command records as the version
	for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
		to="$work/$round/kvd-$version-${platform/\//-}"
		mkdir -p "$to"
		echo "release: round $round of 2, $platform"
		(cd "$work/source$round" && GOCACHE="$work/cache$round" CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} \
			go build -trimpath -buildvcs=true -o "$to/" ./cmd/...)
	done
done
diff -r "$work/1" "$work/2" || { echo "release: the two builds differ" >&2; exit 1; }

rm -rf bin/release
mkdir -p bin/release
for directory in "$work"/1/*; do
	name=$(basename "$directory")
	for binary in kvd kvbench; do
		go run ./scripts/sbom "$directory/$binary" >"bin/release/$name.$binary.spdx.json"
	done
	cp --parents LICENSE README.md internal/GUARANTEES.md cmd/kvd/README.md cmd/kvbench/README.md "$directory"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -C "$work/1" -cf - "$name" |
		gzip -n >"bin/release/$name.tar.gz"
done
(cd bin/release && sha256sum -- *.tar.gz *.spdx.json >SHA256SUMS && cat SHA256SUMS)
