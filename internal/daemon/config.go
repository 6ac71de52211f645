package daemon

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/address"
	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/pace"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Config holds the configuration of a service. DefaultConfig returns one; flags and the
// environment change it through Settings.
type Config struct {
	Data           string
	Create         bool // the store, whatever the place looks like
	Listen         string
	Admin          string
	Partitions     int           // 0: what is there, or engine.DefaultPartitions() for a new store
	Durability     kv.Durability // kv.DurabilityDefault: buffered for Dev, else sync
	Memory         int64         // budget of the whole process; 0: see defaultMemory
	BatchOps       int           // 0: batcher.DefaultMaxOps
	Linger         time.Duration
	FlushKeys      int
	Archive        string // directory; empty: the commit log is not archived
	ArchiveEvery   time.Duration
	ArchiveBacklog int64
	Threshold      int // values of at least this many bytes are stored apart; 0: none
	Grace          time.Duration
	LowDisk        int64
	AllowDamaged   bool          // see engine.Options
	Scrub          time.Duration // how long a pass of the background scrub takes; 0: there is none
	Compare        time.Duration // between two comparisons of the states of a cluster's nodes; 0: there are none
	TransferRate   int64         // bytes of files a second, for and from another node of a cluster
	MaxSync        time.Duration
	MaxCall        time.Duration // the longest deadline of a call
	SlowTime       time.Duration // of the slow log; 0: none
	SlowCount      int
	SlowHide       bool
	RawSockets     bool
	Reflection     string // auto: of a loopback address
	// MaxConns, MaxPeerConns and MaxAdminConns bound connections; 0: see limitConnections.
	MaxConns, MaxPeerConns, MaxAdminConns int

	// Tokens is the name of the file with the identities of clients; empty: none.
	Tokens string
	// AuditLog is the name of the file for sign-ins and refusals; empty: none.
	AuditLog string
	// TLSCert, TLSKey and ClientCA are the names of files, in PEM; empty: none.
	TLSCert, TLSKey, ClientCA string

	// Cluster says that the store is a node of a cluster: see InitNode.
	Cluster bool
	// ClusterListen is the address for the other nodes; empty: that in NODE.
	ClusterListen string
	// ClusterAdvertise is the address that the node tells for clients; empty: Listen.
	ClusterAdvertise string
	// ClusterCert, ClusterKey and ClusterCA are the names of files, in PEM; empty: none.
	ClusterCert, ClusterKey, ClusterCA string

	LogLevel  string
	LogFormat string
	Dev       bool
	Remote    bool

	// FS is where the store lives, vfs.OS unless Dev or a test says otherwise.
	FS vfs.FS
	// Log is told what happens. Required.
	Log *zap.Logger
	// Hangups has a value for each SIGHUP: files that can be replaced are read again. Nil:
	// they are only polled.
	Hangups <-chan struct{}
	// Supervisor is told the state of the service; see SupervisorFromEnv.
	Supervisor Supervisor
	// Chosen are the settings that are not the default, for the log: see NonDefault.
	Chosen []string

	// Reread returns the configuration that the flags, the variables and the configuration
	// file as it is now give. Nil: there is no file.
	Reread func() (Config, error)

	level        *zap.AtomicLevel // of Log; nil: it does not follow LogLevel
	segmentBytes int64            // of the log; 0: the engine's default
}

// DefaultConfig returns what a service without any setting runs with.
func DefaultConfig() Config {
	return Config{
		Data: "./kvd-data", Listen: "127.0.0.1:7070", Admin: "127.0.0.1:7071",
		Grace: 10 * time.Second, LowDisk: 64 << 20, MaxSync: 20 * time.Second, MaxCall: time.Minute,
		SlowTime: 10 * time.Millisecond, SlowCount: 128,
		RawSockets: true, Reflection: "auto", LogLevel: "info", LogFormat: "auto", FS: vfs.OS,
		Threshold: engine.DefaultValueThreshold, Scrub: 7 * 24 * time.Hour, Compare: 10 * time.Minute, TransferRate: pace.BackupRate, ArchiveEvery: time.Minute, ArchiveBacklog: 4 << 30,
	}
}

// Settings lists every setting of c, in the order of the help. Setting one
// changes c; what c holds now counts as the default.
func (c *Config) Settings() []*Setting {
	settings := []*Setting{
		{Name: "data", value: stringValue{&c.Data}, Help: "directory of the store; created if it is missing and its parent exists"},
		{Name: "create", value: boolValue{&c.Create},
			Help: "create a new store even if the parent directory is missing, or the directory holds other files"},
		{Name: "listen", value: stringValue{&c.Listen}, Help: "address for clients; port 0 chooses a free port"},
		{Name: "admin", value: stringValue{&c.Admin}, Help: "address for health, metrics and profiles: host:port, or unix:/path/to/socket for this user alone. With --tokens all but /livez and /readyz need a token with the right to monitor, and profiles one of an administrator, except on a socket; not on loopback it uses --tls-cert"},
		{Name: "partitions", value: intValue{&c.Partitions},
			Help: fmt.Sprintf("number of hash partitions of a new store, fixed at its creation; 0 means what an existing store has, and for a new one two for each processor, at least 4: here %d", engine.DefaultPartitions())},
		{Name: "durability", value: durabilityValue{&c.Durability}, Help: "durability of writes that do not choose one: memory, buffered or sync"},
		{Name: "memory", value: bytesValue{&c.Memory}, Help: "memory budget of the process; auto is a quarter of the memory of the machine or cgroup, but at least 256MiB, or half of it if that is less"},
		{Name: "batch-ops", value: intValue{&c.BatchOps}, Help: fmt.Sprintf("most operations in a micro-batch of writes or of reads; 0 means %d", batcher.DefaultMaxOps)},
		{Name: "linger", value: durationValue{&c.Linger}, Help: "how long a micro-batch of writes or of reads waits for more operations if it is not full; 0 means not at all"},
		{Name: "flush-keys", value: intValue{&c.FlushKeys}, Help: "flush a memtable at this many entries; 0 means no such limit"},
		{Name: "value-threshold", value: intValue{&c.Threshold},
			Help: "store values of at least this many bytes apart from their keys, so that compactions rarely rewrite them; 0 means none"},
		{Name: "grace", Live: true, value: durationValue{&c.Grace}, Help: "longest time of a stop, at least 1s: calls in flight finish, then the store is closed; after that time the process ends in any case"},
		{Name: "low-disk", value: bytesValue{&c.LowDisk}, Help: "accept only deletes while the disk has less free space than this"},
		{Name: "allow-damaged", value: boolValue{&c.AllowDamaged},
			Help: "serve a store although tables or value files are missing, cut or cannot be opened: reads of their keys fail, everything else works; without it such a store is refused with exit code 65"},
		{Name: "scrub-interval", value: durationValue{&c.Scrub},
			Help: "verify every checksum of the store's files once in this time, in the background, with 256KiB to 32MiB a second and at most a tenth of the disk's time; 0 means never, else at least 1s. See kvd scrub"},
		{Name: "compare-interval", value: durationValue{&c.Compare},
			Help: "of a node of a cluster: compare the states of all nodes once in this time, in the background, with at most 32MiB a second and a twentieth of a processor; 0 means that this node takes no part, else at least 1s"},
		{Name: "transfer-rate", value: bytesValue{&c.TransferRate},
			Help: "of a node of a cluster: most bytes a second that it reads of its files for a node that needs a copy of the store, to verify and to send them, and that it receives as such a node; at least 1MiB. More shortens the copy and delays requests"},
		{Name: "max-sync-time", Live: true, value: durationValue{&c.MaxSync}, Help: "end the process if a write, a sync or any other disk operation takes longer than this; at least 1s"},
		{Name: "max-deadline", Live: true, value: durationValue{&c.MaxCall}, Help: "longest deadline of a call; longer ones are cut to this, except for scans, pipelines and watches; at least 1s"},
		{Name: "slow-log-time", Live: true, value: durationValue{&c.SlowTime}, Help: "record requests that take at least this long in the slow log, see kvd slowlog; 0 means none"},
		{Name: "slow-log-entries", value: intValue{&c.SlowCount}, Help: fmt.Sprintf("number of requests in the slow log, of which the newest are kept; at most %d", maxSlowCount)},
		{Name: "slow-log-hide-keys", Live: true, value: boolValue{&c.SlowHide}, Help: "record no part of keys in the slow log; values are never recorded"},
		{Name: "max-connections", value: intValue{&c.MaxConns},
			Help: fmt.Sprintf("most connections of clients; 0 means %d, or less if the limit of open files is too low", maxConns)},
		{Name: "max-peer-connections", value: intValue{&c.MaxPeerConns},
			Help: fmt.Sprintf("most connections from one IPv4 address or one IPv6 /64 network; 0 means %d, or less likewise", maxPeerConns)},
		{Name: "max-admin-connections", value: intValue{&c.MaxAdminConns},
			Help: fmt.Sprintf("most connections to the admin address; beyond that idle ones are closed; 0 means %d, or less likewise", maxAdmin)},
		{Name: "raw-sockets", value: boolValue{&c.RawSockets}, Help: "read and write small frames by system calls that bypass Go's scheduler, which saves processor time; false uses only package net"},
		{Name: "reflection", value: choiceValue{&c.Reflection, []string{"auto", "on", "off"}}, Help: "offer gRPC reflection, which tools such as grpcurl use; auto means on loopback addresses only"},
		{Name: "tls-cert", value: stringValue{&c.TLSCert},
			Help: "file with the server's certificate in PEM, followed by those of intermediate authorities; clients then need TLS 1.3. Read again within seconds if it changes, and on SIGHUP"},
		{Name: "tls-key", value: stringValue{&c.TLSKey}, Help: "file with the private key of that certificate, likewise"},
		{Name: "client-ca", value: stringValue{&c.ClientCA},
			Help: "file with the authorities of client certificates, likewise; clients then need a certificate, or with --tokens a certificate or a token"},
		{Name: "tokens", value: stringValue{&c.Tokens},
			Help: "file with the identities of clients and their rights, see kvd token; likewise. Without it, a client with a certificate may do everything"},
		{Name: "audit-log", value: stringValue{&c.AuditLog},
			Help: "file for sign-ins and administrative calls, as JSON lines without keys and values; refusals go to NAME.refused. At 64MiB a file is renamed to NAME.1 or NAME.refused.1. Needs --tokens or --client-ca"},
		{Name: "archive", value: stringValue{&c.Archive},
			Help: "directory to which the commit log is copied before it is deleted, so that kvd restore can restore any version since a backup; best on another disk. Made if it is missing; each store needs its own"},
		{Name: "archive-interval", value: durationValue{&c.ArchiveEvery}, Help: "how long a write may be missing in the archive, while that can be written to; at least 1s"},
		{Name: "archive-backlog", value: bytesValue{&c.ArchiveBacklog},
			Help: "most bytes of the commit log that wait for the archive; beyond that, or when the disk of the store is nearly full, the oldest are deleted, and no restore crosses that gap"},
		{Name: "cluster", value: boolValue{&c.Cluster}, Help: "serve a node of a cluster, which kvd cluster init has made"},
		{Name: "cluster-listen", value: stringValue{&c.ClusterListen},
			Help: "address for the other nodes of the cluster; empty means the address of this node that kvd cluster init was given"},
		{Name: "cluster-advertise", value: stringValue{&c.ClusterAdvertise},
			Help: "address of this node for clients, as it tells it to the cluster; empty means that of --listen, with the host of its address for the other nodes if it listens at all"},
		{Name: "cluster-cert", value: stringValue{&c.ClusterCert},
			Help: "file with the certificate of this node in PEM, whose URI is kvd-node:CLUSTER/NODE; without it all nodes have to be on loopback. Read again within seconds if it changes, and on SIGHUP"},
		{Name: "cluster-key", value: stringValue{&c.ClusterKey}, Help: "file with the private key of that certificate, likewise"},
		{Name: "cluster-ca", value: stringValue{&c.ClusterCA}, Help: "file with the authorities of the certificates of all nodes, likewise"},
		{Name: "log-level", Live: true, value: choiceValue{&c.LogLevel, []string{"debug", "info", "warn", "error"}}, Help: "lowest level of lines to log"},
		{Name: "log-format", value: choiceValue{&c.LogFormat, []string{"auto", "console", "json"}}, Help: "format of log lines on standard error; auto means console on a terminal, and json otherwise"},
		{Name: "dev", value: boolValue{&c.Dev}, Help: "keep everything in memory, which is lost at the end; the default durability is then buffered"},
		{Name: "insecure-allow-remote", value: boolValue{&c.Remote}, Help: "allow addresses that are not loopback although not every client is encrypted and authenticated; without it they need --tls-cert, --tls-key, and --client-ca or --tokens"},
	}
	for _, s := range settings {
		s.preset = s.value.String()
	}
	return settings
}

// maxSlowCount keeps the slow log within a message, and a megabyte of memory.
const maxSlowCount = 4096

const (
	// maxBatchOps is far beyond what a micro-batch benefits from.
	maxBatchOps = 1 << 16
	// maxLinger is far beyond what lingering gains; every call takes that long.
	maxLinger = time.Second
	// minBacklog is one segment of the commit log.
	minBacklog = 64 << 20
	// minTransferRate keeps the copy of a store from never ending: it lags while it is made.
	minTransferRate = 1 << 20
	// maxWait bounds how long the process may appear to hang.
	maxWait = 24 * time.Hour
)

// Check reports whether Run would accept the settings. It opens no store and listens on no
// address.
func (c Config) Check() error { return c.normalize() }

// normalize fills in what depends on other settings, and refuses invalid settings.
func (c *Config) normalize() error {
	if c.Memory == 0 {
		c.Memory = defaultMemory(vfs.OS)
	}
	switch {
	case c.Memory < minMemory:
		return fmt.Errorf("%w: --memory %s is too little; want at least %s", ErrUsage, bytesize.Format(c.Memory), bytesize.Format(minMemory))
	case c.Partitions > descriptor.MaxPartitions:
		return fmt.Errorf("%w: --partitions %d; want at most %d", ErrUsage, c.Partitions, descriptor.MaxPartitions)
	case c.BatchOps > maxBatchOps:
		return fmt.Errorf("%w: --batch-ops %d; want at most %d", ErrUsage, c.BatchOps, maxBatchOps)
	case c.Linger > maxLinger:
		return fmt.Errorf("%w: --linger %v is too long, since every call would take that long; want at most %v", ErrUsage, c.Linger, maxLinger)
	case c.MaxSync < time.Second:
		return fmt.Errorf("%w: --max-sync-time %v is too short; want at least 1s", ErrUsage, c.MaxSync)
	case c.Scrub != 0 && c.Scrub < time.Second:
		return fmt.Errorf("%w: --scrub-interval %v is too short; want at least 1s, or 0 for none", ErrUsage, c.Scrub)
	case c.Compare != 0 && c.Compare < time.Second:
		return fmt.Errorf("%w: --compare-interval %v is too short; want at least 1s, or 0 for none", ErrUsage, c.Compare)
	case c.TransferRate < minTransferRate:
		return fmt.Errorf("%w: --transfer-rate %s is too low; want at least %s", ErrUsage, bytesize.Format(c.TransferRate), bytesize.Format(minTransferRate))
	case c.MaxSync > maxWait:
		return fmt.Errorf("%w: --max-sync-time %v is too long; want at most %v", ErrUsage, c.MaxSync, maxWait)
	case c.Archive != "" && c.Dev:
		return fmt.Errorf("%w: --archive needs a store on disk; leave out --dev", ErrUsage)
	case c.ArchiveEvery < time.Second:
		return fmt.Errorf("%w: --archive-interval %v is too short; want at least 1s", ErrUsage, c.ArchiveEvery)
	case c.ArchiveEvery > maxWait:
		return fmt.Errorf("%w: --archive-interval %v is too long; want at most %v", ErrUsage, c.ArchiveEvery, maxWait)
	case c.ArchiveBacklog < minBacklog:
		return fmt.Errorf("%w: --archive-backlog %s is too little; want at least %s", ErrUsage, bytesize.Format(c.ArchiveBacklog), bytesize.Format(minBacklog))
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
	if err := c.checkTLS(); err != nil {
		return err
	}
	if err := c.checkCluster(); err != nil {
		return err
	}
	if err := c.checkAddress(c.Listen, c.authenticates()); err != nil {
		return err
	}
	if err := c.checkAdmin(); err != nil {
		return err
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
		// On a disk this small free space would always be below the usual mark, and one
		// log segment could take all of it.
		c.LowDisk = min(c.LowDisk, disk/8)
		c.segmentBytes = disk / 16
	}
	return nil
}

// devDisk returns the part of the budget that a store in memory has for its files: half.
func (c *Config) devDisk() int64 { return c.Memory / 2 }

// dataBudget returns the memory for memtables, cache and requests together.
func (c *Config) dataBudget() int64 {
	memory := dataMemory(c.Memory)
	if c.Dev {
		memory -= c.devDisk()
	}
	return memory
}

// checkTLS refuses files that are of no use without others.
func (c *Config) checkTLS() error {
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return fmt.Errorf("%w: --tls-cert and --tls-key belong together; give both, or neither", ErrUsage)
	case c.ClientCA != "" && c.TLSCert == "":
		return fmt.Errorf("%w: --client-ca needs --tls-cert and --tls-key: client certificates are part of TLS", ErrUsage)
	}
	if c.AuditLog != "" && c.ClientCA == "" && c.Tokens == "" {
		return fmt.Errorf("%w: --audit-log needs --tokens or --client-ca: without them there are no sign-ins and no refusals", ErrUsage)
	}
	return nil
}

// authenticates reports whether every client is encrypted and authenticated.
func (c *Config) authenticates() bool { return c.TLSCert != "" && (c.ClientCA != "" || c.Tokens != "") }

// checkAdmin refuses an address of the admin pages that cannot be one, or is not protected.
func (c *Config) checkAdmin() error {
	name, socket := c.adminSocket()
	switch {
	case !socket:
		return c.checkAddress(c.Admin, c.authenticates())
	case name == "":
		return fmt.Errorf("%w: --admin %q names no socket; want unix:/path/to/socket", ErrUsage, c.Admin)
	case len(name) > socketNameBytes:
		return fmt.Errorf("%w: --admin %q: the name of a socket may have %d bytes, this one has %d; choose a shorter one", ErrUsage, c.Admin, socketNameBytes, len(name))
	}
	return nil
}

// checkAddress refuses an address that other machines can reach unless it is protected, or
// --insecure-allow-remote is set.
func (c *Config) checkAddress(hostPort string, protected bool) error {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return fmt.Errorf("%w: address %q: want host:port, such as 127.0.0.1:7070", ErrUsage, hostPort)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%w: address %q: the port is not a number from 0 to 65535", ErrUsage, hostPort)
	}
	switch {
	case c.Remote, protected, address.IsLoopback(host):
		return nil
	case hostPort == c.Admin:
		return fmt.Errorf("%w: %q is not a loopback address, and the admin pages are not protected. "+
			"Listen on 127.0.0.1 or on unix:/path/to/socket; or pass --tls-cert, --tls-key, and --client-ca or --tokens; "+
			"or --insecure-allow-remote if all that can reach the port may see them",
			ErrUsage, hostPort)
	}
	return fmt.Errorf("%w: %q is not a loopback address, and clients are not authenticated: pass --tls-cert, --tls-key, and --client-ca or --tokens "+
		"(kvd cert dev and kvd token make files to try it), or --insecure-allow-remote if all that can reach the port may read and write",
		ErrUsage, hostPort)
}

// reflects reports whether the server offers gRPC reflection.
func (c *Config) reflects() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return c.Reflection == "on" || c.Reflection == "auto" && err == nil && address.IsLoopback(host)
}
