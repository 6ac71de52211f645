#!/usr/bin/env bash
# Generates the Go code of the .proto files under pkg/kvdpb.
#
#   scripts/proto.sh          write the generated code and the hash of the .proto files
#   scripts/proto.sh --check  fail if the committed code is stale
#
# Needs protoc (Debian: protobuf-compiler) and, for the plugins, the Go module
# proxy. Without them, --check compares only the stored hash of the .proto files, so
# that a .proto file cannot change alone.
set -euo pipefail
cd "$(dirname "$0")/.."

root=pkg/kvdpb
hash_file=$root/PROTO.sha256
protoc_gen_go=google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
protoc_gen_go_grpc=google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# list_protos lists the .proto files below the current directory.
list_protos() { find . -name "*.proto" | LC_ALL=C sort; }

hash_protos() { (cd "$root" && sha256sum $(list_protos)); }

install_plugins() {
	GOBIN=$tmp/bin go install "$protoc_gen_go" && GOBIN=$tmp/bin go install "$protoc_gen_go_grpc"
}

# generate DIR writes the generated code below DIR. It removes the version of protoc
# from the headers, so that two versions give the same bytes.
generate() {
	local out=$1
	(cd "$root" && PATH="$tmp/bin:$PATH" protoc -I . \
		--go_out="$out" --go_opt=paths=source_relative \
		--go-grpc_out="$out" --go-grpc_opt=paths=source_relative \
		$(list_protos))
	find "$out" -name '*.pb.go' -exec sed -i -E '/^\/\/ (- )?(\t)?protoc +v?[0-9(]/d' {} +
}

can_generate() { command -v protoc >/dev/null && install_plugins 2>"$tmp/install.log"; }

case "${1:-}" in
"")
	install_plugins
	mkdir "$tmp/out"
	generate "$tmp/out"
	find "$root" -name '*.pb.go' -delete
	cp -R "$tmp/out/." "$root/"
	hash_protos >"$hash_file"
	;;
--check)
	if ! diff -u "$hash_file" <(hash_protos); then
		echo "the protos changed after the code was generated: run scripts/proto.sh" >&2
		exit 1
	fi
	if ! can_generate; then
		echo "protoc or its plugins are not to be had: compared the hash of the protos only" >&2
		exit 0
	fi
	mkdir "$tmp/out"
	generate "$tmp/out"
	(cd "$tmp/out" && find . -name '*.pb.go' | LC_ALL=C sort) >"$tmp/fresh"
	(cd "$root" && find . -name '*.pb.go' | LC_ALL=C sort) >"$tmp/committed"
	diff -u "$tmp/committed" "$tmp/fresh"
	while read -r f; do
		if ! diff -u "$root/$f" "$tmp/out/$f"; then
			echo "$root/$f is stale: run scripts/proto.sh" >&2
			exit 1
		fi
	done <"$tmp/fresh"
	;;
*)
	echo "usage: scripts/proto.sh [--check]" >&2
	exit 64
	;;
esac
