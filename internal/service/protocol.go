package service

// Protocol is one way for clients to talk to a Server. A package below this one
// implements it, and the daemon passes its constructor to [New]; nothing else knows of it.
//
// What a protocol does: it decodes requests, has the Server perform them (Get, Write,
// Apply, Scan and so on, each with a [Call]), encodes what they return, and counts them by
// a [Method]. Connections, admission, memory, errors and statistics are the Server's.
type Protocol interface {
	// ALPN is the name of the protocol in TLS.
	ALPN() string
	// Matches reports whether a plain connection that begins with this byte speaks the
	// protocol. The first protocol that matches serves it.
	Matches(first byte) bool
	// Serve takes over a connection and closes it. It may return before that. A connection
	// that is Refused is told so and closed. Once the server is draining the client is told
	// to leave; when its working context ends, so does the connection.
	Serve(c *Conn)
}

// NewProtocol makes a Protocol of a server that is being made.
type NewProtocol func(*Server) Protocol

// Drainer is a Protocol whose connections last longer than Serve.
type Drainer interface {
	// Drain tells clients to leave and returns when all connections have ended.
	Drain()
	// Stop ends all connections. It may be called during Drain.
	Stop()
}

// ReadinessWatcher is a Protocol that tells its clients whether the server is ready: SetReady
// has the reason if it is not, otherwise nil.
type ReadinessWatcher interface{ SetReady(why error) }

// StatsSource is a Protocol that has counters of its own in Stats.
type StatsSource interface{ AddStats(*Stats) }

// User is what uses a connection, as far as the limits of connections are concerned.
type User interface {
	// InUse reports whether anything is under way, so that ending the connection would
	// lose something.
	InUse() bool
	// Evict tells the client why its connection ends, and ends it. It may take a second.
	Evict()
}
