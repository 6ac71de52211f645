// Package service is the thin floor between clients, which come by gRPC or with
// raw frames, and the store: it admits, checks, translates and answers. It keeps no data and makes no decision about
// any; that is the [Store]'s part.
//
// # The way of a request
//
//	listener     a connection too many, in all or from one address, is closed
//	reception    TLS; a connection of raw frames leaves gRPC here and goes on in raw.go
//	http2        follows the frames that gRPC reads and writes; floods end here
//	tap          a call waits for its request, and is charged for what has come of
//	             it; a unary call without a deadline gets one
//	interceptor  a call too many is refused; panics become INTERNAL, calls are counted
//	handler      limits are checked, protobuf becomes kv words, the store is called
//	gate         what the store has under way is bounded, and how long more may wait
//	errors.go    the store's error becomes a status with a stable reason
//
// # Pipeline
//
// The pipeline is the micro-batching path. Its frames come in three ways: as
// messages of operations on a Pipeline stream, as compact frames (see package
// frame) in such messages, and as compact frames by themselves on a connection of
// their own. The same code serves them; what differs is the carriage. A frame's
// operations are
// sorted into groups that the store can serve together: reads apart from writes,
// reads by version, writes by durability, and those that look before they write
// (at a condition, or to return what was there) apart from plain ones. So a read
// never waits for an fsync, a buffered write never for a synced one, and a plain
// write never for a read. Each group is one call of the store, or a few if much
// is read, and is answered in a frame of its own as soon as it is done.
//
// Operations of one frame are concurrent with each other; so are frames in
// flight. The answer to an operation means that it happened before whatever its
// caller asks for next.
//
// The frames of a pipeline are served by a few goroutines that take turns in
// receiving (the leader/followers pattern of Schmidt et al., 2000): whoever
// receives a frame also serves it, so that a lone caller's operation changes
// goroutines as seldom as a unary call, and passes the turn on before anything that
// may wait, so that a slow group holds up nobody.
//
// Reads from memory do not wait. On a plain raw connection whoever received up to 64
// of them keeps the turn: he asks the store for what it has in memory, writes what
// the socket takes at once, and receives the next frame. Only if something is left
// of either does he pass the turn on first. So a frame of reads wakes nobody at the
// server. Measured beside the passing of each turn, in turns, with a client on the
// same two cores, which were busy otherwise too: 1, 16 and 64 callers had 1.17, 1.18
// and 1.07 times as many answers a second, and the server took 0.68, 0.71 and 0.92 of
// the processor time for each. With gRPC or TLS sending may always wait, so there
// the turn is passed on as soon as a frame is there.
//
// Such a worker lets go of the processor when it waits for the next frame; only if that is
// there already does it yield, as reads do that come one behind the other (see engine). To
// yield behind each frame woke a thread that found nothing to do but to take the worker
// over: without, the server changes threads 0.9 times a frame in place of 1.2 with 64
// callers, and takes 0.87 and 0.93 of the processor time of a Get with 64 and 256.
//
// # Overload
//
// Two bounds stand one behind the other. What is in memory is bounded at the door: a
// connection, a call or a frame too many is refused at once. What waits for its client is
// no work and keeps no other client out: see the next section. What the store is given
// at once is bounded at two gates, one for reads and one for writes (see package
// admission): more would make everything late and nothing faster. Each call of the
// store passes its gate by itself, that of a lone Get like that of a frame, with the
// number of its operations; a large frame that is served in parts passes again with
// each. With room that is one atomic operation. A read that finds no room is first tried
// from memory, through a gate of its own: reads that wait for a disk that hangs may fill the
// gate for as long as that lasts.
//
// Without room it waits in the line of its connection, and connections take turns by
// operations. A call whose time runs out while it waits is dropped
// (DEADLINE_EXCEEDED); one that waits longer than 100 ms, or than 5 ms while the
// queue does not empty, is refused (RESOURCE_EXHAUSTED, cause queue_time), and so is
// one that finds the line of its connection full (queue_full). In all three cases
// nothing was done. The advice when to come back is about as long as the queue has
// been too long by then, up to a second, and spread.
//
// A frame that waits occupies one of the few workers of its pipeline, so a client
// that sends on without regard is held up by its own flow control.
//
// # Hostile and unlucky clients
//
// What a client announces costs it nothing, so it is charged for nothing but what has come:
//
//	requests that have not come   all of them, idle streams and parts of raw frames are in
//	                              one list with a bound of its own, in number and bytes.
//	                              The bytes are in the account of all requests, with
//	                              256 more for each DATA frame. Beyond the bound, or
//	                              while the account is full, the connection that has
//	                              more than its share loses its eldest, which is told
//	                              that nothing was done (waits.go, receive.go)
//	long requests of unary calls  one that does not fit into the window of its stream
//	                              gets a larger one only once it has a place, and there
//	                              is memory for it. Connections take turns, and one that
//	                              is announced and does not come loses its place to the
//	                              next within a second or so (intake.go)
//	messages beyond the limit     they are refused when their length has come, with a reason
//	                              and without a larger window (receive.go)
//	calls that are served, and    a connection may have as many as are free beside it
//	snapshots                     (shares.go, leases.go)
//	answers to unary calls        while the transport has more than a quarter of the
//	                              memory of them, a connection's calls are refused; and
//	                              one that is not read for as long as a default deadline
//	                              ends the connection (unread.go)
//	connections                   one beyond the limit takes the place of one that idles,
//	                              or is told why there is none for it (listener.go)
//	resets                        more than 1,024 streams at once, or 100 a second, that
//	                              the client resets, or breaks the protocol with, end a
//	                              connection with GOAWAY (ENHANCE_YOUR_CALM); what all
//	                              connections of an address have counts too, so that one
//	                              that is made again gets less (peers.go)
//	frames that ask for nothing   10,000 at once, or 1,000 a second, and one more for each
//	                              256 bytes that were sent or received, likewise
//	                              (http2_conn.go)
//	health checks                 have bounds of their own
//
// An address is that of a machine, or of a network of 64 bits in version 6. All clients of
// this machine have one, which has no share.
//
// gRPC itself bounds the header list and what follows it (CONTINUATION), pings, and what it
// queues for a client that does not read, such as acknowledgements of settings.
//
// The price is for a frame of HTTP/2, of which only the header is looked at, and for a
// unary call two entries in a list. Raw frames pay nothing, unless they come in parts.
//
// # Raw frames
//
// The port is the same: a plain connection is told by its first byte, one of TLS
// by the protocol that its handshake agreed on. What gRPC gives a stream such a
// connection has by itself: it is bounded as a connection; each frame is charged,
// while it comes too unless it came at once, for what has come of it; a frame that stands still or answers
// that are not taken for as long as a default deadline end it; so do age, and idle
// time. What is no frame ends it too, and the client is told why. An answer is one
// write, and takes those along that became ready during the write before. A plain one is
// read and written by package rawconn.
//
// Why they exist: with a store that answers at once (BenchmarkFrames, two cores,
// one connection over loopback, client and server in one process) gRPC itself is
// most of the price of a small frame.
//
//	operations/s, reads        1 frame of 1   1 frame of 64   4 frames of 64
//	messages of operations          17,000         433,000          633,000
//	messages of compact frames      15,000         724,000        1,290,000
//	raw frames                      28,000       1,058,000        1,370,000
//
// So raw frames serve 1.7 times as many lone reads as messages of operations, and
// 2.2 to 2.4 times as many in full frames; writes are alike. A frame costs one
// allocation there, client and server together, where by gRPC it costs 16 to 28.
//
// # Idle connections
//
// Most connections of most services idle most of the time, so one that idles holds
// nothing that another could use. On a plain socket it waits without a buffer, which is
// borrowed for the moment of trying to read, and kept only with something in it: raw
// frames do so in input.go, and gRPC by ready.go, where it would keep 32 KiB otherwise.
// The calls of the kernel are the same, as package net tries before it waits, too. The
// memory of a frame is lent from when something of it has come until it is answered.
// What tells the client to move in time is a timer. With TLS a buffer is kept.
//
// What each of 2,000 holds on both ends, of which 1,300 bytes are sockets', in bytes of
// heap and stacks, and goroutines (BenchmarkIdleConnections):
//
//	                              as it was              as it is
//	by gRPC                       39,800 +  8,300   3    6,700 +  8,700   3
//	raw                           20,500 + 11,800   3    2,900 +  4,000   1
//	raw, once 8 frames of 64     179,000 + 40,600  10    6,300 + 32,700   8
//
// It matters where memory is short, since the garbage collector then works the more
// often the less is left to it, and looks at each stack each time. With a budget of 512
// MiB 10,000 idle gRPC connections had made an operation of 200 busy clients, half of
// them Puts, cost the server 1.7 to 2.1 times the processor time (three runs on two
// processors that others used too), and make it cost no more now. With 1 GiB, and data
// of which a third of that is enough, they were hardly to be seen before either.
//
// So 10,000 connections are within the limits: all connections count against
// Connections, and those of one address against PeerConnections; calls by gRPC, and the
// open pipelines among them, against Streams. What they hold is charged to nobody, and
// is in go_memstats_heap_inuse_bytes and go_memstats_stack_inuse_bytes.
//
// # Where the time goes
//
// Of every request that comes to the store it is known where its time went, each
// moment in one stage. A request here is what the store serves in one go: a group of a
// frame, or a unary call.
//
//	gate       until the store has it: taken apart, and, in an overload, let in
//	inbox .. sync   as the store tells, see trace.Stages
//	reply      answers are put together and sent, also while a client does not take them
//
// It is in histograms (kvd_request_stage_seconds); in the answer, if the frame or call
// asks, up to when that is written down; and in the slow log, if it was long: a ring of
// the newest, with the beginning of one key each and never a value. A fast request
// costs that log one comparison. What a frame waits for in the buffers of a connection
// nobody here sees: it is the network's, as the client sees it. Scans go at their
// clients' pace and are not timed.
//
// The price is for a group and not for an operation: two or three looks at the clock
// here and two to eight in the store, an allocation for what is taken up by a
// micro-batch, and two additions for each stage. In the engine that is 0.4 us of the
// call that reads one key from memory, and for 16 keys and more less than what such
// calls differ by anyway. For 256 callers that each wait for a Get of 128 bytes, by raw
// frames on two cores that were busy otherwise too, client and server together took
// 1.008 times the processor time of those before, the server 1.011 (medians of 120
// pairs of runs, in turns); two runs of the same binaries differed by 1.014 and 1.002.
// So it is about 1 %, and hardly to be told from none. Buffered Puts of 256 callers pay
// no more, though a frame of them has a micro-batch to time in each of 16 partitions:
// 1.004 times the processor time of both (medians of 20 runs in turns).
//
// # Transactions
//
// A transaction lives in its client: TxnService pins a snapshot for it under a
// lease, and takes what it read and wants to write in one Commit. The server keeps
// nothing between the two calls.
//
// # Ending
//
// A pipeline is told to move (going_away) when it is old or the server shuts down.
// Operations that still arrive during a shutdown are refused, never dropped: an
// orderly restart leaves no write in doubt.
package service
