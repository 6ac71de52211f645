package daemon

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Config is everything that a service is started with. DefaultConfig makes one;
// Settings lets flags and the environment change it.
type Config struct {
	Data       string
	Create     bool // the store, whatever the place looks like
	Listen     string
	Admin      string
	Partitions int           // 0: what is there, or engine.DefaultPartitions for a new store
	Durability kv.Durability // kv.DurabilityDefault: buffered for Dev, else sync
	Memory     int64         // budget of the whole process; 0: see defaultMemory
	BatchOps   int           // 0: batcher.DefaultMaxOps
	Linger     time.Duration
	FlushKeys  int
	Threshold  int // values of at least so many bytes are kept apart; 0: none is
	Grace      time.Duration
	LowDisk    int64
	MaxSync    time.Duration
	MaxCall    time.Duration // the longest deadline of a call
	SlowTime   time.Duration // of the slow log; 0: none
	SlowCount  int
	SlowHide   bool
	RawSockets bool
	Reflection string // auto: of a loopback address
	// MaxConns, MaxPeerConns and MaxAdminConns bound connections; 0: see limitConnections.
	MaxConns, MaxPeerConns, MaxAdminConns int

	LogLevel  string
	LogFormat string
	Dev       bool
	Remote    bool

	// FS is where the store lives, vfs.OS unless Dev or a test says otherwise.
	FS vfs.FS
	// Log is told what happens. Required.
	Log *zap.Logger
	// Chosen are the settings that are not the default, for the first line of the
	// log: see NonDefault.
	Chosen []string

	segmentBytes int64 // of the log; 0: the engine's default
}

// DefaultConfig returns what a service without any setting runs with.
func DefaultConfig() Config {
	return Config{
		Data: "./kvd-data", Listen: "127.0.0.1:7070", Admin: "127.0.0.1:7071",
		Grace: 10 * time.Second, LowDisk: 64 << 20, MaxSync: 20 * time.Second, MaxCall: time.Minute,
		SlowTime: 10 * time.Millisecond, SlowCount: 128,
		RawSockets: true, Reflection: "auto", LogLevel: "info", LogFormat: "console", FS: vfs.OS,
		Threshold: engine.DefaultValueThreshold,
	}
}

// Settings lists every setting of c, in the order of the help. Setting one
// changes c; what c holds now counts as the default.
func (c *Config) Settings() []*Setting {
	settings := []*Setting{
		{Name: "data", value: stringValue{&c.Data}, Help: "directory of the store; made if it is not there, but its parent is"},
		{Name: "create", value: boolValue{&c.Create},
			Help: "make a new store also in a directory whose parent is missing, or that holds other files"},
		{Name: "listen", value: stringValue{&c.Listen}, Help: "address for clients; port 0 takes a free one"},
		{Name: "admin", value: stringValue{&c.Admin}, Help: "address for health, metrics and profiles"},
		{Name: "partitions", value: intValue{&c.Partitions},
			Help: fmt.Sprintf("hash partitions of a new store, fixed from then on; 0 takes %d, or what is there", engine.DefaultPartitions)},
		{Name: "durability", value: durabilityValue{&c.Durability}, Help: "of writes that do not choose: memory, buffered or sync"},
		{Name: "memory", value: bytesValue{&c.Memory}, Help: "budget of the process; auto is a quarter of the machine or cgroup, at least 256MiB"},
		{Name: "batch-ops", value: intValue{&c.BatchOps}, Help: fmt.Sprintf("most operations in a micro-batch, of writes or of reads; 0 takes %d", batcher.DefaultMaxOps)},
		{Name: "linger", value: durationValue{&c.Linger}, Help: "how long a micro-batch that is not full, of writes or of reads, waits for more; 0 never waits"},
		{Name: "flush-keys", value: intValue{&c.FlushKeys}, Help: "flush a memtable at this many entries; 0 goes by memory alone"},
		{Name: "value-threshold", value: intValue{&c.Threshold},
			Help: "keep values of at least this many bytes apart from their keys, so that compactions rarely write them again; 0 keeps none apart"},
		{Name: "grace", value: durationValue{&c.Grace}, Help: "how long a stop may take, at least 1s: calls in flight finish, then the store is closed; then the process ends anyway"},
		{Name: "low-disk", value: bytesValue{&c.LowDisk}, Help: "take deletes alone while less than this is free on the disk"},
		{Name: "max-sync-time", value: durationValue{&c.MaxSync}, Help: "end the process when a write, a sync or any other operation on the disk takes longer; at least 1s"},
		{Name: "max-deadline", value: durationValue{&c.MaxCall}, Help: "cut longer deadlines of calls to this; scans, pipelines and watches may last longer; at least 1s"},
		{Name: "slow-log-time", value: durationValue{&c.SlowTime}, Help: "keep requests that take as long in the slow log, see kvd slowlog; 0 keeps none"},
		{Name: "slow-log-entries", value: intValue{&c.SlowCount}, Help: fmt.Sprintf("how many of them to keep, the newest; at most %d", maxSlowCount)},
		{Name: "slow-log-hide-keys", value: boolValue{&c.SlowHide}, Help: "keep no part of their keys; values are never kept"},
		{Name: "max-connections", value: intValue{&c.MaxConns},
			Help: fmt.Sprintf("most connections of clients; 0 takes %d, or less where the process may not have as many files open", maxConns)},
		{Name: "max-peer-connections", value: intValue{&c.MaxPeerConns},
			Help: fmt.Sprintf("most of them from one address, or one /64 network; 0 takes %d, or less likewise", maxPeerConns)},
		{Name: "max-admin-connections", value: intValue{&c.MaxAdminConns},
			Help: fmt.Sprintf("most connections to the admin address; beyond it idle ones are closed; 0 takes %d, or less likewise", maxAdmin)},
		{Name: "raw-sockets", value: boolValue{&c.RawSockets}, Help: "read and write small frames without telling Go's runtime, which saves processor time; false leaves connections to package net"},
		{Name: "reflection", value: choiceValue{&c.Reflection, []string{"auto", "on", "off"}}, Help: "let tools such as grpcurl ask for the schema; auto does on loopback addresses"},
		{Name: "log-level", value: choiceValue{&c.LogLevel, []string{"debug", "info", "warn", "error"}}, Help: "least important lines to log"},
		{Name: "log-format", value: choiceValue{&c.LogFormat, []string{"console", "json"}}, Help: "how lines on standard error look"},
		{Name: "dev", value: boolValue{&c.Dev}, Help: "keep everything in memory, gone at the end; writes are then buffered by default"},
		{Name: "insecure-allow-remote", value: boolValue{&c.Remote}, Help: "listen on other than loopback addresses, without any protection"},
	}
	for _, s := range settings {
		s.preset = s.value.String()
	}
	return settings
}

// maxSlowCount keeps the slow log within a message, and a megabyte of memory.
const maxSlowCount = 4096

const (
	// maxBatchOps is far beyond what a batch gains from.
	maxBatchOps = 1 << 16
	// maxLinger is far beyond what lingering gains from; every call takes as long.
	maxLinger = time.Second
	// maxWait bounds for how long the process may seem to hang.
	maxWait = 24 * time.Hour
)

// normalize fills in what follows from other settings and reports what makes no
// sense.
func (c *Config) normalize() error {
	if c.Memory == 0 {
		c.Memory = defaultMemory(vfs.OS)
	}
	switch {
	case c.Memory < minMemory:
		return fmt.Errorf("%w: --memory %s is too little; want at least %s", ErrUsage, FormatBytes(c.Memory), FormatBytes(minMemory))
	case c.Partitions > descriptor.MaxPartitions:
		return fmt.Errorf("%w: --partitions %d; want at most %d", ErrUsage, c.Partitions, descriptor.MaxPartitions)
	case c.BatchOps > maxBatchOps:
		return fmt.Errorf("%w: --batch-ops %d; want at most %d", ErrUsage, c.BatchOps, maxBatchOps)
	case c.Linger > maxLinger:
		return fmt.Errorf("%w: --linger %v is too long, every call would take that; want at most %v", ErrUsage, c.Linger, maxLinger)
	case c.MaxSync < time.Second:
		return fmt.Errorf("%w: --max-sync-time %v is too short; want at least 1s", ErrUsage, c.MaxSync)
	case c.MaxSync > maxWait:
		return fmt.Errorf("%w: --max-sync-time %v is too long; want at most %v", ErrUsage, c.MaxSync, maxWait)
	case c.MaxCall < time.Second:
		return fmt.Errorf("%w: --max-deadline %v is too short; want at least 1s", ErrUsage, c.MaxCall)
	case c.MaxCall > maxWait:
		return fmt.Errorf("%w: --max-deadline %v is too long; want at most %v", ErrUsage, c.MaxCall, maxWait)
	case c.Grace > maxWait:
		return fmt.Errorf("%w: --grace %v is too long; want at most %v", ErrUsage, c.Grace, maxWait)
	case c.SlowTime > 0 && (c.SlowCount < 1 || c.SlowCount > maxSlowCount):
		return fmt.Errorf("%w: --slow-log-entries %d; want 1 to %d, or --slow-log-time 0 for none", ErrUsage, c.SlowCount, maxSlowCount)
	case c.Data == "" && !c.Dev:
		return fmt.Errorf("%w: --data is empty; name a directory", ErrUsage)
	}
	if err := c.limitConnections(openFileLimit()); err != nil {
		return err
	}
	for _, address := range []string{c.Listen, c.Admin} {
		if err := c.checkAddress(address); err != nil {
			return err
		}
	}
	if c.Durability == kv.DurabilityDefault {
		c.Durability = kv.DurabilitySync
		if c.Dev {
			c.Durability = kv.DurabilityBuffered
		}
	}
	if c.Dev {
		mem := vfs.NewMem()
		disk := c.devDisk()
		mem.SetCapacity(disk)
		c.FS, c.Data = mem, "dev"
		// On a disk this small the usual mark would never be cleared, and one log
		// segment could be all of it.
		c.LowDisk = min(c.LowDisk, disk/8)
		c.segmentBytes = disk / 16
	}
	return nil
}

// devDisk is the part of the budget that a store in memory has for its files: half.
func (c *Config) devDisk() int64 { return c.Memory / 2 }

// dataBudget is what memtables, cache and requests have together.
func (c *Config) dataBudget() int64 {
	memory := dataMemory(c.Memory)
	if c.Dev {
		memory -= c.devDisk()
	}
	return memory
}

// checkAddress refuses addresses that others can reach, unless they are asked
// for: nothing protects a connection yet.
func (c *Config) checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%w: address %q: want host:port, such as 127.0.0.1:7070", ErrUsage, address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%w: address %q: the port is no number from 0 to 65535", ErrUsage, address)
	}
	if c.Remote {
		return nil
	}
	if !isLoopback(host) {
		return fmt.Errorf("%w: %q is not a loopback address, and connections are not protected: TLS and tokens come with a later version. "+
			"Listen on 127.0.0.1 behind a tunnel or proxy, or pass --insecure-allow-remote if everybody who reaches the port may read and write",
			ErrUsage, address)
	}
	return nil
}

// isLoopback reports whether a host is reached from this machine alone.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// reflects reports whether clients may ask for the schema.
func (c *Config) reflects() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return c.Reflection == "on" || c.Reflection == "auto" && err == nil && isLoopback(host)
}
