// Package server is the thin floor between gRPC and the store: it admits,
// checks, translates and answers. It keeps no data and makes no decision about
// any; that is the [Store]'s part.
//
// # The way of a request
//
//	listener     a connection too many, in all or from one address, is closed
//	tap          a stream too many is refused before its body is read; a unary
//	             call without a deadline gets one, so that a body that trickles in
//	             ends too
//	interceptor  panics become INTERNAL, calls are counted
//	handler      limits are checked, protobuf becomes kv words, the store is called
//	errors.go    the store's error becomes a status with a stable reason
//
// # Pipeline
//
// The Pipeline stream is the micro-batching path. A frame's operations are
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
// The frames of a stream are served by a few goroutines that take turns in
// receiving (the leader/followers pattern of Schmidt et al., 2000): whoever
// receives a frame also serves it, so that a lone caller's operation changes
// goroutines as seldom as a unary call, and hands the receiving to the next
// before it begins, so that a slow group holds up nobody.
//
// # Transactions
//
// A transaction lives in its client: TxnService pins a snapshot for it under a
// lease, and takes what it read and wants to write in one Commit. The server keeps
// nothing between the two calls.
//
// # Ending
//
// A stream is told to move (going_away) when it is old or the server shuts down.
// Operations that still arrive during a shutdown are refused, never dropped: an
// orderly restart leaves no write in doubt.
package server
