package main

import (
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/bench/service/load"
)

// cell is what one figure is measured with: a load that contestants run alternately.
type cell struct {
	row         string // by which the flag selects it
	name        string
	contestants []string
	sync        bool // sets wait for the disk
	load        load.Closed
	// clients is the number of clients, each with its own connection, if more than one.
	clients int
	// overload runs an overload once after the load.
	overload bool
}

// Names of cells, by which goals refer to them.
func getCell(callers int) string { return fmt.Sprintf("get, %d callers", callers) }
func mixCell(callers int) string { return fmt.Sprintf("get/set 50/50 sync, %d callers", callers) }
func setCell(callers int) string { return fmt.Sprintf("set sync, %d callers", callers) }

func bufferedCell(callers int) string {
	return fmt.Sprintf("get/set 50/50 buffered, %d callers", callers)
}
func updateCell(callers int) string { return fmt.Sprintf("update sync, %d callers", callers) }
func viewCell(callers int) string   { return fmt.Sprintf("view, %d callers", callers) }
func conditionalCell(callers int) string {
	return fmt.Sprintf("conditional set sync, %d callers", callers)
}

const (
	memoryCell    = "get/set 50/50 sync, 256 callers, servers just filled"
	etcdCell      = "set sync, 256 callers, etcd"
	clusterSet    = "set, 256 callers, three nodes"
	clusterGet    = "get, 256 callers, three nodes"
	clusterLone   = "set, 1 caller, three nodes"
	memcachedCell = "get, 256 callers, memcached"
	loneGetCell   = "get, 1 caller"
	lonePutCell   = "set sync, 1 caller"
	overloadCell  = "overload"
	idleCell      = "get/set 50/50 buffered, 200 clients"
)

// rows are the values of the flag.
var rows = []string{"memory", "get", "mix", "set", "buffered", "update", "view", "conditional", "etcd", "cluster", "memcached", "lone", "overload", "idle"}

var (
	getCallers         = []int{64, 256, 1024}
	mixCallers         = []int{64, 256, 1024}
	setCallers         = []int{64, 256, 1024}
	bufferedCallers    = []int{64, 256, 1024}
	updateCallers      = []int{64, 256} // and of views
	conditionalCallers = []int{16, 256}
)

// ownKeys is the number of keys of each caller whose sets are conditional: few enough
// that the callers have read all of them once before they are measured.
const ownKeys = 64

// leastKeys lets each caller have keys of its own.
const leastKeys = 256

// clusterKeys is the number of keys that clusters are filled with, and measured on, beside a single
// node: few, as etcd takes long to put them.
const clusterKeys = 100_000

// busyClients is how many clients are busy beside idle connections, each with one
// connection and one caller.
const busyClients = 200

// cells returns all cells, in the order in which they are measured.
func cells(o *options) (all []cell) {
	closed := func(callers, getPercent int) load.Closed {
		return load.Closed{
			Callers: callers, GetPercent: getPercent, Keys: uint64(o.keys), ValueBytes: o.valueBytes, Seed: 1,
			Warmup: o.slot / 5, Duration: o.slot,
		}
	}
	all4 := []string{ours, rueidis, rueidis100, rueidis20, ours4}
	all = append(all, cell{row: "memory", name: memoryCell, contestants: []string{ours, rueidis, ours4}, sync: true, load: closed(256, 50)})
	for _, n := range getCallers {
		who := append(slices.Clone(all4), oursgRPC, redisBench)
		if n == 256 {
			who = append(who, goRedis)
		}
		all = append(all, cell{row: "get", name: getCell(n), contestants: who, sync: true, load: closed(n, 100)})
	}
	for _, n := range mixCallers {
		all = append(all, cell{row: "mix", name: mixCell(n), contestants: all4, sync: true, load: closed(n, 50)})
	}
	for _, n := range setCallers {
		who := append(slices.Clone(all4), redisBench)
		all = append(all, cell{row: "set", name: setCell(n), contestants: who, sync: true, load: closed(n, 0)})
	}
	for _, n := range bufferedCallers {
		all = append(all, cell{row: "buffered", name: bufferedCell(n), contestants: all4, load: closed(n, 50)})
	}
	for _, n := range updateCallers {
		all = append(all,
			cell{row: "update", name: updateCell(n), contestants: []string{oursUpdate, ours}, sync: true, load: closed(n, 0)},
			cell{row: "view", name: viewCell(n), contestants: []string{oursView, oursSnapshot, ours}, load: closed(n, 100)})
	}
	for _, n := range conditionalCallers {
		l := closed(n, 0)
		l.OwnKeys = min(ownKeys, o.keys/n)
		all = append(all, cell{row: "conditional", name: conditionalCell(n), contestants: []string{oursIfVersion, oursIfValue, ours}, sync: true, load: l})
	}
	lone := closed(1, 0)
	cluster := func(name string, callers, getPercent int) cell {
		l := closed(callers, getPercent)
		l.Keys = min(l.Keys, clusterKeys)
		return cell{row: "cluster", name: name, contestants: []string{oursCluster, etcdCluster, ours}, sync: true, load: l}
	}
	peak := closed(peakCallers, 50) // long enough for the overload to be five times as much
	peak.Warmup, peak.Duration = o.overload/15, o.overload/5
	return append(all,
		cell{row: "etcd", name: etcdCell, contestants: []string{ours, etcd}, sync: true, load: closed(256, 0)},
		cluster(clusterSet, 256, 0), cluster(clusterGet, 256, 100), cluster(clusterLone, 1, 0),
		cell{row: "memcached", name: memcachedCell, contestants: []string{ours, gomemcache}, load: closed(256, 100)},
		cell{row: "lone", name: loneGetCell, contestants: []string{ours, rueidis, echo, oursx16, oursx64}, sync: true, load: closed(1, 100)},
		cell{row: "lone", name: lonePutCell, contestants: []string{ours, rueidis, echo, appendOnly}, sync: true, load: lone},
		cell{row: "overload", name: overloadCell, contestants: []string{ours}, sync: true, load: peak, clients: overloadClients, overload: true},
		cell{row: "idle", name: idleCell, contestants: []string{ours, oursIdle}, load: closed(busyClients, 50), clients: busyClients},
	)
}

// loadFor returns the load of a cell, adapted to a contestant.
func (c *cell) loadFor(who *contestant, round int) load.Closed {
	l := c.load
	l.Seed += uint64(round)
	l.Batch, l.Sets = who.batch, who.sets
	if who.echoes {
		l.GetPercent = 0
	}
	return l
}
