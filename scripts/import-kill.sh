#!/usr/bin/env bash
# Interrupts an import: imports the WordNet dictionary over gRPC at durability
# sync, kills the server with SIGKILL in the middle, restarts it, resumes, and
# compares the export with the input.
set -euo pipefail
cd "$(dirname "$0")/.."

CGO_ENABLED=0 go build -o bin/ ./cmd/kvd
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

serve() {
	rm -f "$work/ready"
	mkfifo "$work/ready"
	./bin/kvd serve --data "$work/data" --listen 127.0.0.1:0 --admin 127.0.0.1:0 >"$work/ready" 2>>"$work/log" &
	server=$!
	local listen
	read -r _ listen _ <"$work/ready"
	export KVD_ADDR=${listen#listen=}
}

./scripts/wordnet.sh >"$work/input.jsonl"
lines=$(wc -l <"$work/input.jsonl")
echo "input: $lines lines, $(stat -c %s "$work/input.jsonl") bytes"

serve
./bin/kvd import --durability sync --resume "$work/resume" "$work/input.jsonl" >"$work/import.log" 2>&1 &
import=$!
until [ -s "$work/resume" ]; do # until some of it is durably imported
	kill -0 "$import" || { cat "$work/import.log"; exit 1; }
done
kill -9 "$server"
wait "$server" || true
if wait "$import"; then
	echo "the import ended before the kill; it is too small to interrupt" >&2
	exit 1
fi
echo "killed the server; the import stopped: $(tail -1 "$work/import.log")"
echo "resume state: $(tr '\n' ' ' <"$work/resume")"

serve
echo "restarted: $(./bin/kvd scan --keys-only | wc -l) keys are there"
./bin/kvd import --durability sync --resume "$work/resume" "$work/input.jsonl" 2>&1 | tail -1
./bin/kvd export >"$work/output.jsonl"
kill "$server"
wait "$server"
server=

cmp <(sort "$work/input.jsonl") <(sort "$work/output.jsonl")
echo "export equals the input, line by line after sorting"
./bin/kvd check "$work/data" | tail -1
serve
./bin/kvd get dog | head -3
kill "$server"
wait "$server"
server=
