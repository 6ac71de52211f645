package service

import (
	"crypto/tls"
	"runtime"
	"time"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
)

// Options are what an operator or a test may choose. The zero value is a server
// without TLS and with the documented limits.
type Options struct {
	// TLS secures every connection, by TLS 1.3; nil is plain text. The NextProtos, also of
	// what GetConfigForClient returns, are the server's.
	TLS *tls.Config
	// Auth knows the clients and their rights; nil: every client may do everything.
	Auth *auth.Authority
	// Audit is told of sign-ins, refusals and administrative calls, if there is Auth. It may be
	// called concurrently and must return soon. Nil discards them.
	Audit func(audit.Event)
	// Reflection lets tools such as grpcurl ask for the schema.
	Reflection bool

	// NetOnly has plain connections read and written by package net alone. Else those
	// that are exactly a *net.TCPConn or a *net.UnixConn are by package rawconn.
	NetOnly bool

	// Connections is the most that are open at once, 10,240 by default, and
	// PeerConnections the most from one address, 1,024 by default. Connections of
	// a unix socket count as one address.
	Connections, PeerConnections int
	// BufferBytes is the most that requests in progress may occupy, 512 MiB by
	// default. Of these, requests that have come in part may have a quarter; or as much as
	// two of the largest have, up to a third; and as much as one of them in any case.
	BufferBytes int64
	// MaxDeadline is the longest that a call may ask for, a minute by default: a longer
	// deadline is cut to it. Scans, pipelines and watches have none.
	MaxDeadline time.Duration

	// SlowTime is from how long on a request is kept in the slow log; 0 keeps none. The
	// log has the newest SlowEntries, 128 by default, with the first bytes of a key
	// each unless SlowHideKeys is set.
	SlowTime     time.Duration
	SlowEntries  int
	SlowHideKeys bool

	// ReportError is told of errors whose cause the caller does not see: the caller
	// gets the request id. It may be called concurrently. Nil discards them.
	ReportError func(requestID, method string, err error)

	// SetSetting changes a setting of the process while it runs, and returns its values before
	// and after. by is the client, as an identity or else an address. The text of an error goes
	// to the client. It may be called concurrently. Nil: no setting changes.
	SetSetting func(by, name, value string) (before, after string, err error)

	// Incarnation returns that of the cluster that the store belongs to, which clients are told; nil: it
	// belongs to none.
	Incarnation func() kv.Incarnation
	// Cluster is the cluster that the store belongs to; nil: none.
	Cluster Cluster
	// Forward has the node that leads the cluster perform writes which this one refuses because
	// it does not lead; nil: clients are told which node leads.
	Forward Forwarder

	// The remaining fields have their defaults in every server that is used. Tests set
	// them, to reach a bound with few calls or in little time. They are exported because
	// tests of the protocols, which are other packages, set them too.

	// Streams is the most calls by gRPC that are served at once, 4,096 by default, and
	// as many more may wait for their clients: for the request, or for what a long-lived
	// stream sends or takes. Beyond that a connection that has more than others loses
	// one that waits. A connection may have as many as are free beside it. A connection
	// of raw frames is no call: it may idle for most of its life.
	Streams int
	// Snapshots is the most that clients may have open at once, 1,024 by default, and
	// not more than the store's. A connection may have as many as are free beside it; if
	// none is, one that has next to none takes one from the holder with the most.
	Snapshots int
	// ReadOps is the most keys that the store is asked for at once, and WriteOps the most
	// operations that it is given to write; see also writeBytes. A call that finds no room
	// waits for it, 100 ms at most, and 5 ms while the queue stands (see package admission).
	//
	// ReadOps is 2,048 for each processor by default, and not below 4,096: work for
	// the processors and the disk of some milliseconds, so that more at once brings
	// nothing but longer waits. WriteOps is 32,768: many, since writes wait for the disk
	// together. All guessed.
	ReadOps, WriteOps int
	// Deadline is given to calls that come without one, 30 s by default. Scans and
	// pipelines may last longer, but not stand still for as long.
	Deadline time.Duration
	// Lifetimes bound how long connections and streams last.
	Lifetimes Lifetimes
}

func (o Options) withDefaults() Options {
	setDefault(&o.Connections, 10240)
	setDefault(&o.PeerConnections, 1024)
	setDefault(&o.Streams, 4096)
	setDefault(&o.Snapshots, 1024)
	setDefault(&o.BufferBytes, 512<<20)
	setDefault(&o.ReadOps, max(4096, 2048*runtime.GOMAXPROCS(0)))
	setDefault(&o.WriteOps, 32768)
	setDefault(&o.Deadline, 30*time.Second)
	setDefault(&o.MaxDeadline, max(time.Minute, o.Deadline))
	setDefault(&o.SlowEntries, 128)
	o.Lifetimes.setDefaults()
	if o.Audit == nil {
		o.Audit = func(audit.Event) {}
	}
	if o.ReportError == nil {
		o.ReportError = func(string, string, error) {}
	}
	return o
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// healthStreams is the most health checks at once, and watches of health. Guessed: one
// for each balancer and prober there may be.
const healthStreams = 256

// messageSlack is what protobuf and a batch's operations may add to the bytes
// of keys and values.
const messageSlack = 64 << 10

// MessageBytes is the largest message that a request within the limits needs.
func MessageBytes(l kv.Limits) int {
	const perOp = 64 // tags, lengths and numbers of one mutation, or of what was read
	// A transaction has as many reads, at most, as writes; a lone put may have a
	// condition on its value.
	return max(l.BatchBytes, l.KeyBytes+2*l.ValueBytes) + 2*l.BatchOps*perOp + messageSlack
}

// Lifetimes of connections and streams. The zero value of each is its default.
type Lifetimes struct {
	// StreamAge is how long a pipeline lasts before the client is told to open
	// another, ± 10 %. It also bounds how long an idle client keeps a connection:
	// one without streams is closed after ConnIdle.
	StreamAge time.Duration
	// CloseWait is how long the client has to do so.
	CloseWait time.Duration
	// ShutdownWait is CloseWait during a shutdown, counted from the last frame.
	ShutdownWait time.Duration

	// Handshake is how long a new connection has to say that it speaks HTTP/2 or
	// raw frames, TLS included.
	Handshake time.Duration
	ConnIdle  time.Duration
	ConnAge   time.Duration
	// A connection on which nothing came for PingAfter is pinged, if it carries raw
	// frames by TCP, and closed if the peer does not answer within PingWait.
	PingAfter time.Duration
	PingWait  time.Duration
}

func (t *Lifetimes) setDefaults() {
	setDefault(&t.StreamAge, 10*time.Minute)
	setDefault(&t.CloseWait, 30*time.Second)
	setDefault(&t.ShutdownWait, time.Second)
	setDefault(&t.Handshake, 5*time.Second)
	setDefault(&t.ConnIdle, 10*time.Minute)
	setDefault(&t.ConnAge, 2*time.Hour) // ± 10 %
	setDefault(&t.PingAfter, time.Minute)
	setDefault(&t.PingWait, 20*time.Second)
}
