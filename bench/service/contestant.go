package main

import (
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/bench/command"
	"github.com/kvd-db/kvd/bench/service/client"
	"github.com/kvd-db/kvd/bench/service/load"
	"github.com/kvd-db/kvd/bench/service/server"
)

// contestant is a client and its server.
type contestant struct {
	name   string
	client string
	server string // empty: it needs none. For Redis see serverFor
	batch  int    // keys of one get
	sets   load.How
	// echoes says that nothing is stored: only sets are supported.
	echoes bool
	// tool says that the client is a program of its own: see arena.runTool.
	tool bool
	idle int // number of idle connections
}

// The names of contestants. kvd is measured in several configurations.
const (
	ours          = "kvd"   // the default store, by which goals are judged
	ours4         = "kvd-4" // 4 partitions
	oursgRPC      = "kvd gRPC only"
	oursx16       = "kvd x16"
	oursx64       = "kvd x64"
	oursIdle      = "kvd beside idle"
	oursUpdate    = "kvd Update"
	oursView      = "kvd View"
	oursSnapshot  = "kvd Snapshot"
	oursIfVersion = "kvd IfVersion"
	oursIfValue   = "kvd IfValue"

	rueidis    = "rueidis"
	rueidis100 = "rueidis-100us"
	rueidis20  = "rueidis-20us"
	goRedis    = "go-redis"
	redisBench = "redis-benchmark"
	gomemcache = "gomemcache"
	etcd       = "etcd"
	echo       = "gRPC echo"
	appendOnly = "append"
	echoAppend = "echo + append" // computed from the two

	oursCluster = "kvd, three nodes"
	etcdCluster = "etcd, three nodes"
)

// idleConnections is the number that the goal states.
const idleConnections = 10_000

var contestants = []contestant{
	{name: ours, client: client.KVD, server: "kvd"},
	{name: ours4, client: client.KVD, server: "kvd-4"},
	{name: oursgRPC, client: client.KVDgRPC, server: "kvd"},
	{name: oursx16, client: client.KVD, server: "kvd", batch: 16},
	{name: oursx64, client: client.KVD, server: "kvd", batch: 64},
	{name: oursIdle, client: client.KVD, server: "kvd", idle: idleConnections},
	{name: oursUpdate, client: client.KVD, server: "kvd", sets: load.Updates},
	{name: oursView, client: client.KVDView, server: "kvd"},
	{name: oursSnapshot, client: client.KVDSnapshot, server: "kvd"},
	{name: oursIfVersion, client: client.KVD, server: "kvd", sets: load.IfVersion},
	{name: oursIfValue, client: client.KVD, server: "kvd", sets: load.IfValue},
	{name: rueidis, client: client.Rueidis, server: redis},
	{name: rueidis100, client: client.Rueidis100, server: redis},
	{name: rueidis20, client: client.Rueidis20, server: redis},
	{name: goRedis, client: client.GoRedis, server: redis},
	{name: redisBench, server: redisApart, tool: true},
	{name: gomemcache, client: client.GoMemcache, server: "memcached"},
	{name: etcd, client: client.Etcd, server: "etcd"},
	{name: oursCluster, client: client.KVD, server: "kvd-cluster"},
	{name: etcdCluster, client: client.Etcd, server: "etcd-cluster"},
	{name: echo, client: client.Echo, server: "echo", echoes: true},
	{name: appendOnly, client: client.AppendAlone, echoes: true},
}

// redis stands for one of two servers: the one with the durability of the cell.
// redisApart likewise stands for servers with the keys of redis-benchmark.
const (
	redis      = "redis"
	redisApart = "redis apart"
)

func findContestant(name string) (*contestant, error) {
	i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })
	if i < 0 {
		return nil, fmt.Errorf("no contestant is named %q: %w", name, command.ErrUsage)
	}
	return &contestants[i], nil
}

// serverFor returns the name of the server for cells with or without sync.
func (c *contestant) serverFor(sync bool) string {
	name := "redis-everysec"
	if sync {
		name = "redis-always"
	}
	switch c.server {
	case redis:
		return name
	case redisApart:
		return name + apart
	}
	return c.server
}

// apart ends the names of servers with the keys of redis-benchmark.
const apart = "-apart"

// program returns the program that a contestant needs besides its server; empty: none.
func (c *contestant) program() string {
	if c.tool {
		return c.name
	}
	return ""
}

// kinds returns all servers, by name.
func kinds(kvdBinary string) (map[string]*server.Kind, error) {
	echo, err := server.Own("echo", "echo-server")
	if err != nil {
		return nil, err
	}
	all := make(map[string]*server.Kind)
	for _, k := range []*server.Kind{
		server.KVD(kvdBinary, 4), server.KVD(kvdBinary, 0), server.Redis("always", ""), server.Redis("everysec", ""),
		server.Redis("always", apart), server.Redis("everysec", apart),
		server.Memcached(), server.Etcd(), server.KVDCluster(kvdBinary), server.EtcdCluster(), echo,
	} {
		all[k.Name] = k
	}
	return all, nil
}

// loader returns the client that fills a server before it is measured; empty if it stores
// nothing, or is filled otherwise.
func loader(server string) string {
	switch server {
	case "kvd-4", "kvd", "kvd-cluster":
		return client.KVD
	case "etcd", "etcd-cluster":
		return client.Etcd
	case "redis-always", "redis-everysec":
		return client.Rueidis
	case "memcached":
		return client.GoMemcache
	}
	return ""
}
