// Package frameapi serves compact frames (see package frame) on connections of their own,
// and the frames that another protocol carries in its streams. A [Pipeline] serves the frames
// of one [Transport]; the code is the same for all transports.
//
// # The way of a frame
//
//	Receive      the worker that has the receive token reads a frame (raw.go, input.go)
//	Pipeline     charges its bytes to the memory account, or refuses it (pipeline.go)
//	split        sorts its operations into batches by their batchKey (batch.go)
//	batch        one call of service.Server, or a few if it reads much
//	calls        or, of a frame of calls: performs each by package messages (calls.go)
//	Send         answers what is done; answers that become ready during a write go with the
//	             next one
//
// # Promises
//
//	F1. Every operation of a frame is answered once, in any order. Operations of a frame are
//	    concurrent with each other, and so are frames. An answer means that the operation
//	    happened before whatever its client asks for next.
//	F2. No operation waits for what only another one asked for. The batchKey separates reads
//	    from writes, reads by version, writes by durability, and writes that read first (a
//	    condition, or what the key held) from those that do not. So a read does not wait for
//	    a sync, and a buffered write does not wait for a synced one. Only if a frame has more than
//	    256 batches some wait for a goroutine: those of reads at a version, for each other.
//	    Each call of a frame of calls is performed by itself, and answered soon after it is
//	    done, together with others that one sync made durable (calls.go).
//	F3. A worker passes the receive token on before it waits for anything, so a slow batch
//	    delays no later frame.
//	F4. A client that sends no whole frame, or takes no answers, for as long as the default
//	    deadline is cut off. So are connections that idle or are old, after they were told.
//	F5. What is not a frame ends the connection, and the client is told why, after the answers to all
//	    frames before it: the client relies on that if a frame is too large (Pipeline.Run).
//	F6. The memory of a frame with a write in doubt is not used again, since the store may
//	    still read it.
//
// # Workers
//
// A pipeline has up to eight workers, which follow each other as receivers (leader/followers,
// Schmidt et al., 2000): the worker that receives a frame also serves it. Thus a lone
// operation changes goroutines as seldom as a unary call.
//
// Reads from memory do not wait. On a plain connection a worker that received up to 64 of
// them keeps the token: it asks the store for what memory has, writes what the socket takes
// at once, and receives the next frame. It passes the token on only if something of either
// is left. This takes 0.7 times the processor time for a few callers (bench/NOTES.md). With
// gRPC or TLS sending may always wait, so there the token is passed on first.
//
// A batch that waits for admission occupies a worker, so a client that sends more than is
// admitted is slowed by its own flow control.
//
// # Memory
//
// A connection that idles holds no buffer: it waits for its socket without one, and borrows
// one when something has come. The memory of a frame is lent from its first byte until it is
// answered. With TLS a buffer is kept.
package frameapi
