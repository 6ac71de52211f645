#!/usr/bin/env bash
# Starts a cluster on this machine, to try it: three nodes on loopback ports, with their data in a
# directory that is used again next time. Shows every two seconds what each node says of the cluster,
# and which commands kill, pause and cut off a node. Ctrl-C stops all.
#
#   [NODES=5] [DIR=kvd-cluster] [PORT=7000] scripts/cluster.sh
set -euo pipefail
cd "$(dirname "$0")/.."

nodes=${NODES:-3} dir=${DIR:-kvd-cluster} port=${PORT:-7000}
members= addresses=
for ((n = 1; n <= nodes; n++)); do
	members+=${members:+,}$n=127.0.0.1:$((port + 100 + n))
	addresses+=${addresses:+,}127.0.0.1:$((port + n))
done
id=00000000c105e7e5
mkdir -p "$dir"

# serve starts a node, of which nothing runs. Its output goes to a file.
pids=()
serve() {
	bin/kvd serve --cluster --data "$dir/node$1" --listen "127.0.0.1:$((port + $1))" --admin "127.0.0.1:$((port + 200 + $1))" \
		>>"$dir/node$1.log" 2>&1 &
	pids[$1]=$!
}

stop() {
	trap - EXIT
	kill -CONT "${pids[@]}" 2>/dev/null || true
	kill "${pids[@]}" 2>/dev/null || true
	wait
}
trap stop EXIT
trap exit INT TERM

for ((n = 1; n <= nodes; n++)); do
	if [[ ! -e $dir/node$n/NODE ]]; then
		bin/kvd cluster init --data "$dir/node$n" --node "$n" --cluster "$id" --members "$members" --partitions 4 >/dev/null
	fi
	serve "$n"
done

# state prints what a node says of the cluster.
state() {
	if ! kill -0 "${pids[$1]}" 2>/dev/null; then
		echo "does not run; it starts again when $dir/node$1.start is made"
		return
	fi
	# shellcheck disable=SC2016 # the inner shell expands it
	timeout 1 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"; printf "GET /readyz?verbose HTTP/1.0\r\n\r\n" >&3; sed -n "s/^\[.\] cluster: //p" <&3' _ \
		"$((port + 200 + $1))" 2>/dev/null || echo "does not answer"
}

while true; do
	[[ -t 1 ]] && clear
	for ((n = 1; n <= nodes; n++)); do
		if [[ -e $dir/node$n.start ]]; then
			rm "$dir/node$n.start"
			kill -0 "${pids[$n]}" 2>/dev/null || serve "$n"
		fi
		printf 'node %d, pid %d: %s\n' "$n" "${pids[$n]}" "$(state "$n")"
	done
	cat <<END

use it    bin/kvd put hello world --addr $addresses
kill      kill -9 ${pids[1]}; to start it again: touch $dir/node1.start
stop      kill ${pids[1]}
pause     kill -STOP ${pids[1]}; kill -CONT ${pids[1]}
cut off   as root: iptables -I INPUT -i lo -p tcp --dport $((port + 101)) -j DROP, which node 1 then does not hear
          the others by; iptables -D INPUT ... ends it
logs      $dir/node1.log
END
	sleep 2
done
