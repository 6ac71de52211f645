#!/usr/bin/env bash
# Writes the WordNet dictionary as JSON lines for `kvd import`: about 150,000
# headwords and their definitions. Needs Debian's package dict-wn, and installs it
# if it is missing and the user may install packages.
#
#   scripts/wordnet.sh > wordnet.jsonl
set -euo pipefail
cd "$(dirname "$0")/.."

dict=${DICTD_DIR:-/usr/share/dictd}
if [ ! -f "$dict/wn.index" ]; then
	echo "wordnet: $dict/wn.index is missing, installing dict-wn" >&2
	if ! { apt-get update -qq && apt-get install -y -qq dict-wn; } >&2; then
		echo "wordnet: install the package dict-wn, or set DICTD_DIR to where wn.index and wn.dict.dz are" >&2
		exit 1
	fi
fi
exec go run ./scripts/wordnet "$dict/wn.index" "$dict/wn.dict.dz"
