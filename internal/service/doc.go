// Package service performs what clients ask of a store, whatever protocol they speak: it
// limits, admits, checks, translates, counts and explains. It keeps no data and decides
// nothing about data; that is for the [Store], of which the engine is one. It knows no
// protocol: each is a package below this one that implements [Protocol].
//
// # The way of a call
//
//	listener        a connection beyond a limit, of all or of one address, replaces one that
//	                idles, or is refused (listener.go)
//	protocolDemux   TLS; the ALPN, or the first byte, says which protocol it is (demux.go)
//	Protocol        decodes a request and begins a Call (grpcapi, frameapi)
//	Authorize       finds the identity of the client, and whether the method is for them (authorize.go)
//	Charge          takes what it costs from the quota of its client (quota.go)
//	Server          checks limits, the request, and the rights to its keys, in the words of package kv (check.go)
//	admission       waits until the store may take the work, or refuses it (gates.go)
//	Store           performs it (store.go); in a cluster perhaps that of the node that leads
//	                (package forward)
//	Failure         turns an error of the store into an Error with a code, a reason and
//	                figures (errors.go)
//	Protocol        encodes the answer, counts it by its Method, and ends the Call
//
// Operations: points.go has reads and writes of single keys in batches, batches.go what is
// atomic, scan.go scans, snapshots.go leases. A protocol calls them directly. Those for
// batches of points allocate nothing.
//
// # A new protocol
//
// A package below this one implements [Protocol], and daemon.Protocols gets a line. The
// tests have one of lines (lines_test.go). It shares the port, the limits, admission, the
// errors, the counters and the slow log with all others, and imports none of them.
//
// # Rights
//
// Every method names a [Rule], or the server does not start. Then each operation is judged by
// the keys and ranges that it touches, beside its limits in check.go: operations in batches,
// both branches of Execute, what a transaction has read, conditions and returned items. A
// frame is judged by the identity of its connection or stream when it arrives, and a scan
// before each chunk, so that a revoked token ends what it began. Streams that wait for their
// clients are judged once a second. Without authentication that costs a comparison with nil.
//
// # Quotas
//
// An identity may have a quota (see package auth), which counts all of its connections
// together, whatever the protocol: operations and bytes that arrive, before they are judged,
// bytes of answers, open snapshots, connections. Each operation of a batch, a transaction or a
// frame is one, and so is each page of a scan; the operations of a frame are refused one by
// one, unless they are answered at one version. What is beyond the quota is refused
// (RESOURCE_EXHAUSTED, cause quota_requests and the like) with the time after which it is not.
// The pages of a scan and the parts of a backup wait instead.
//
// The bytes of a value that is read, also of one that a write returns, are taken when its size is
// known, before it is copied: the quota is the Meter of the call's ReadBudget. While bytes are
// owed the value is refused and its operation not performed. Values that are answered at one
// version are taken together, after they are read. An identity without a quota costs a
// comparison with nil (quota.go).
//
// # Promises
//
//	S1. What is refused was not begun: nothing of it was done. An operation whose outcome
//	    is not known fails with the reason OUTCOME_UNKNOWN, and with no other.
//	S2. An Error has no key, value, file name or Go type in its message. What a client must
//	    not see is reported to the operator under a request id.
//	S3. What requests hold is bounded by one memory account, what the store has under way by
//	    admission, and both by connection and address: a client that takes more than its
//	    share delays, and loses, its own requests first.
//	S4. Every moment of a request that uses the store is in one [Stage].
//	S5. A shutdown refuses what still arrives and finishes what is under way. No write of an
//	    orderly restart is left in doubt.
//
// # Admission
//
// There are two bounds. What is in memory is bounded where it arrives: a connection, a call
// or a frame too many is refused at once. What the store performs at a time is bounded by
// admission, for reads and for writes apart (see package admission): more at a time would be
// slower, not more. Each call of the store is admitted with the number of its operations; a
// large frame that is served in parts is admitted with each. With room that is one atomic
// operation. Reads that find no room are first tried from memory, with a bound of their own,
// because reads that wait for a disk that hangs may fill the bound for as long as it hangs.
//
// Without room a call waits in the line of its connection. Connections take turns by
// operations, and so do addresses. A call whose deadline passes meanwhile is dropped
// (DEADLINE_EXCEEDED). One that waits longer than 100 ms, or than 5 ms while the queue does
// not empty, is refused (RESOURCE_EXHAUSTED, cause queue_time), and so is one that finds the
// line of its connection full (queue_full). The advice when to retry is about as long as the
// queue has been too long, up to a second, and spread.
//
// # Hostile and unlucky clients
//
// A client is charged for what has arrived, not for what it announces:
//
//	requests that have not arrived  are in one list with the idle streams, bounded in number
//	                                and bytes. Beyond the bound, or while the memory account
//	                                is full, the connection with more than its share loses
//	                                its oldest, and is told that nothing was done (waits.go)
//	calls and snapshots             a connection may have as many as are free beside it
//	                                (shares.go, leases.go)
//	connections                     one beyond the limit replaces one that idles, or is told
//	                                why there is no place (listener.go)
//	requests that are given up      more than 1,024 at once, or 100 a second, end a
//	                                connection; those of all connections of an address count
//	                                together, so that connecting again does not help
//	                                (peers.go)
//
// An address is that of a machine, or of a network of 64 bits in version 6. All clients of
// this machine have one address, which has no share. What only one protocol allows, such as
// floods of HTTP/2 frames, is bounded there.
//
// # Where the time goes
//
// The time of a request is divided into stages:
//
//	gate            from its arrival until the store has it: decoding, and admission
//	inbox .. sync   as the store tells, see trace.Stages
//	reply           encoding and sending, also while the client does not take the answer
//
// It is in histograms (kvd_request_stage_seconds); in the answer, if the client asks; and in
// the slow log, if it was long: a ring of the newest slow requests, with the first bytes of
// one key each and never a value. A fast request costs that log one comparison. Scans go at
// the pace of their clients and are not timed. All of it costs about 1 % of the processor
// time of a small Get (bench/NOTES.md).
//
// # Transactions
//
// A transaction lives in its client, which pins a snapshot under a lease and brings what it
// read and wants to write in one Commit. The server keeps nothing between the two calls.
package service
