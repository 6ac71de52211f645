// Package client contains the clients of the compared services, each configured as its
// documentation recommends unless its name says otherwise.
package client

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kvd-db/kvd/bench/service/load"
)

// Client is a connection to one server, shared by all of its callers.
type Client interface {
	load.Target
	io.Closer
}

// Options describe the server and how it is used.
type Options struct {
	// Address of a cluster has those of all nodes, separated by commas.
	Address string `json:"address"`
	// Sync makes sets wait for the disk. For Redis the server decides that.
	Sync bool `json:"sync"`
	// Callers is the number of concurrent callers.
	Callers int `json:"callers"`
	// Timeout is how long kvd's client waits for an answer; 0: its default.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Conns is the number of connections of kvd's client; 0: its default.
	Conns int `json:"conns,omitempty"`
	// Dir is for clients that write files of their own.
	Dir string `json:"dir,omitempty"`
}

// The names of all clients.
const (
	KVD         = "kvd"
	KVDgRPC     = "kvd without raw frames"
	KVDView     = "kvd, a snapshot for each get"
	KVDSnapshot = "kvd, gets of one snapshot"
	Rueidis     = "rueidis"
	Rueidis100  = "rueidis, flushes of 100 us"
	Rueidis20   = "rueidis, flushes of 20 us"
	GoRedis     = "go-redis"
	GoMemcache  = "gomemcache"
	Etcd        = "etcd"
	Echo        = "echo"
	AppendAlone = "append"
)

var opens = map[string]func(Options) (Client, error){
	KVD:         openKVD,
	KVDgRPC:     openKVDgRPC,
	KVDView:     openKVDView,
	KVDSnapshot: openKVDSnapshot,
	Rueidis:     rueidisFlushing(0),
	Rueidis100:  rueidisFlushing(100),
	Rueidis20:   rueidisFlushing(20),
	GoRedis:     openGoRedis,
	GoMemcache:  openGoMemcache,
	Etcd:        openEtcd,
	Echo:        openEcho,
	AppendAlone: openAppend,
}

// errNothingStored is the answer to a Get of clients that serve only as a reference.
var errNothingStored = errors.New("nothing is stored here")

// Open returns a client by its name.
func Open(name string, o Options) (Client, error) {
	if opens[name] == nil {
		return nil, fmt.Errorf("no client is named %q", name)
	}
	return opens[name](o)
}

// OpenAll opens n clients.
func OpenAll(name string, o Options, n int) (clients []Client, err error) {
	for range n {
		c, err := Open(name, o)
		if err != nil {
			return clients, err
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// Targets returns the clients as targets of a load.
func Targets(clients []Client) []load.Target {
	targets := make([]load.Target, len(clients))
	for i, c := range clients {
		targets[i] = c
	}
	return targets
}
