package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// BudgetBytes is the memory limit of every server that has one.
const BudgetBytes = 1 << 30

// KVD is a kvd server with this many partitions; 0 is its default.
func KVD(binary string, partitions int) *Kind {
	name := "kvd"
	if partitions > 0 {
		name = fmt.Sprintf("kvd-%d", partitions)
	}
	return &Kind{Name: name, Binary: binary, announces: true, args: func(address, dir string) []string {
		args := []string{"serve", "--data", dir + "/data", "--listen", address, "--admin", "127.0.0.1:0",
			"--partitions", strconv.Itoa(partitions), "--memory", strconv.Itoa(BudgetBytes), "--durability", "sync",
			"--max-sync-time", "24h", // a freeze during a sync must not count as a broken disk
			"--log-level", "warn"}
		if mayOpen(2 * kvdConnections) {
			args = append(args, "--max-connections", strconv.Itoa(kvdConnections))
		}
		return args
	}}
}

// kvdConnections suffices for 10,000 idle connections and for 200 busy clients, each of
// which has two connections for frames and two for gRPC.
const kvdConnections = 12 << 10

// mayOpen reports whether this process and its children may have n files open.
func mayOpen(n uint64) bool {
	var limit syscall.Rlimit
	return syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil && limit.Cur >= n
}

// Redis is a Redis server with an append-only file that is synced always, or every
// second: appendfsync. The file is never rewritten, and there are no snapshots, which
// saves Redis the processor time of both. The name of the server ends with suffix.
func Redis(appendfsync, suffix string) *Kind {
	return &Kind{Name: "redis-" + appendfsync + suffix, Binary: "redis-server", args: func(address, dir string) []string {
		return []string{"--port", port(address), "--bind", "127.0.0.1", "--dir", dir, "--daemonize", "no",
			"--save", "", "--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0"}
	}}
}

// Memcached has threads and connections for all callers.
func Memcached() *Kind {
	return &Kind{Name: "memcached", Binary: "memcached", args: func(address, _ string) []string {
		args := []string{"-l", "127.0.0.1", "-p", port(address), "-U", "0", "-m", strconv.Itoa(BudgetBytes >> 20), "-c", "4096"}
		if os.Geteuid() == 0 {
			args = append(args, "-u", "root") // it refuses otherwise
		}
		return args
	}}
}

// Etcd is a cluster of one node.
func Etcd() *Kind {
	return &Kind{Name: "etcd", Binary: "etcd", args: func(address, dir string) []string {
		peer, err := freeAddress()
		if err != nil {
			peer = "127.0.0.1:2380"
		}
		return etcdArgs("default", address, peer, "default=http://"+peer, dir)
	}}
}

// etcdArgs is the command line of a node.
func etcdArgs(name, address, peer, members, dir string) []string {
	return []string{"--name", name, "--data-dir", dir + "/data", "--logger", "zap", "--log-level", "error",
		"--listen-client-urls", "http://" + address, "--advertise-client-urls", "http://" + address,
		"--listen-peer-urls", "http://" + peer, "--initial-advertise-peer-urls", "http://" + peer,
		"--initial-cluster", members, "--quota-backend-bytes", strconv.Itoa(8 << 30)}
}

// clusterNodes is the number of nodes of a cluster.
const clusterNodes = 3

// KVDCluster is a cluster of kvd servers, which keep the same data.
func KVDCluster(binary string) *Kind {
	return &Kind{Name: "kvd-cluster", Binary: binary, nodes: func() ([]*Kind, error) {
		peers, err := freeAddresses(clusterNodes)
		if err != nil {
			return nil, err
		}
		var members []string
		for i, peer := range peers {
			members = append(members, fmt.Sprintf("%d=%s", i+1, peer))
		}
		var nodes []*Kind
		for i := range clusterNodes {
			node := KVD(binary, 0)
			node.Name = fmt.Sprintf("kvd-node%d", i+1)
			node.prepare = func(ctx context.Context, dir string) error {
				made, err := exec.CommandContext(ctx, binary, "cluster", "init", "--data", dir+"/data", "--node", strconv.Itoa(i+1),
					"--cluster", "00000000000be7c4", "--members", strings.Join(members, ",")).CombinedOutput()
				if err != nil {
					return fmt.Errorf("kvd cluster init: %w\n%s", err, made)
				}
				return nil
			}
			serve := node.args
			node.args = func(address, dir string) []string { return append(serve(address, dir), "--cluster=true") }
			nodes = append(nodes, node)
		}
		return nodes, nil
	}}
}

// EtcdCluster is a cluster of etcd servers.
func EtcdCluster() *Kind {
	return &Kind{Name: "etcd-cluster", Binary: "etcd", nodes: func() ([]*Kind, error) {
		peers, err := freeAddresses(clusterNodes)
		if err != nil {
			return nil, err
		}
		var members []string
		for i, peer := range peers {
			members = append(members, fmt.Sprintf("etcd-node%d=http://%s", i+1, peer))
		}
		var nodes []*Kind
		for i, peer := range peers {
			name := fmt.Sprintf("etcd-node%d", i+1)
			nodes = append(nodes, &Kind{Name: name, Binary: "etcd", args: func(address, dir string) []string {
				return etcdArgs(name, address, peer, strings.Join(members, ","), dir)
			}})
		}
		return nodes, nil
	}}
}

// Own is a hidden command of this program that serves and prints its address.
func Own(name string, command ...string) (*Kind, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &Kind{Name: name, Binary: self, announces: true, args: func(string, string) []string { return command }}, nil
}

func port(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err) // we made the address
	}
	return port
}
