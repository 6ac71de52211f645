// Package transport is the network beneath the client: a [Network] is a backend.Backend that
// performs each call on a server. It knows connections, frames in flight and retries. It does not
// know the options, batches, transactions and leases of package kvd, which calls it.
//
// # A call
//
// Gets, puts and deletes are sent in frames that concurrent calls share. A GetMany has a frame of its
// own; if the values at a version are many, a gRPC call follows (tryTogether). Atomic batches, commits,
// Execute and calls about snapshots are sent in frames if the server takes calls in frames, which it
// says when a connection is opened; their two forms, which carry the same messages, are in method.go.
// All other calls, and what is large, are gRPC calls. One attempt at an operation or call in a frame:
//
//	Network.attempt     chooses a connection; sets the request id and the timeout
//	conn.do             adds the operation to the frame that its sendQueue fills; a call for which
//	                    that is in vain is attempted by gRPC, which is the same attempt
//	sendQueue           one for each batchKey: operations whose answers wait for the same things
//	frameConn.send      sends the frame when the window has room, unless a caller sends it
//	frameTransport      a connection for raw frames or, if the server does not take those, a stream
//	                    of gRPC with the same frames
//	frameConn.deliver   matches the answers, wakes the callers
//	attempts.again      after a fault: waits, or ends the call with its error
//
// A server that does not lead its cluster refuses writes in frames. A client with several endpoints
// then goes on to the next one, and says in its gRPC calls that it does. A client with one endpoint, or
// whose endpoints all say that another node leads, attempts the write again as a gRPC call, which the
// server has the leader perform. Of a pipeline one write is attempted so and, if that works, the others
// (seekLeader). If that is in vain, because there is no leader, all of this is done anew after a wait. Reads that
// may lag, or name a version at least, are gRPC calls.
//
// No caller waits for the release of a snapshot. It is sent with the next call about a snapshot, or by
// the watchdog.
//
// # Promises
//
//	P1. A write is applied at most once. All attempts at it have the same requestID, which the
//	    server remembers. A write without one is not tried again once it may have been applied.
//	P2. An error that does not match ErrUncertain means that the write was not applied and will
//	    not be. An attempt counts as not applied only if its frame was not sent, or not
//	    completely; if its gRPC call had no stream; or if the server says so, as it also does when
//	    it refuses a frame that is too large (faultOfStream). A later attempt
//	    that was not applied does not settle an earlier one that may have been.
//	P3. A call ends soon after its context, and at most two ticks of the watchdog after the
//	    client's timeout.
//	P4. The load of retries is bounded: by the attempts of a call, and by a budget that successes
//	    refill. What does not cost the budget is bounded otherwise: see retries and anotherWay.
//
// # Order
//
// The operations of one sendQueue are sent in the order in which they were added. Calls of a frame are
// performed by themselves, so one that takes long leaves the window of its queue to the next frame:
// when another call of its frame is answered, or after two ticks of the watchdog. There is no order
// between the queues of a connection, between connections, or between an attempt and the next one. A
// caller that needs an order waits for the answer. Answers may arrive in any order and in several
// frames.
//
// # Who owns a frame
//
// While a pendingFrame is filling, callers add operations to it under conn.mu, and a caller that
// gives up removes its own. While it is being sent, the goroutine that sends it (the sender of the
// frameConn, or the caller that leads) owns the bytes, and holds a reference. Then it belongs to the
// frameConn until it ends. A frame that has ended is read only: each caller copies its answer out of
// it. The last reference puts the frame and its answers back into their pools.
//
// # Who receives
//
// The goroutine that holds the receive token of a frameConn receives, and delivers what comes for all.
// That is its receiver. While a single caller uses a connection, though, each answer would wake two
// goroutines, one after the other. So after some frames that were alone in flight and had one operation
// the receiver leaves the token free, and the caller that sends the next such frame on a socket takes
// it. It receives until its frame has ended, and then leaves the token free again; if there is more to
// receive, or if it gives up, it passes the token to the receiver. While the token is free the end of the
// connection is not noticed at once, so before a write is added the socket is asked. See receiveToken.
//
// # What the watchdog may conclude
//
// From the age of a frame: callers without a deadline give up. If the frame was sent, their
// operations may have been applied.
//
// From silence on a frameConn with frames in flight: the connection is broken. The silence must be
// longer than any caller waits and at least ten seconds, but a minute is always enough. All
// frames of the frameConn fail, their operations may have been applied, and the next frame uses
// another connection. If there are several endpoints, an endpoint is asked over gRPC whether it
// serves requests after a second of silence, and again each second; if it does not answer within another
// one, or is not ready, the connection is broken. An attempt by gRPC ends in the same way (listener). Silence never means that something was not applied. While nothing is in flight and
// the receiver receives, the watchdog does not run; TCP and gRPC keepalives detect a lost server then.
//
// # Locks
//
// conn.mu guards all state of a connection: queues, frames, frameConns, watchdog and fallback.
// Methods whose names end in Locked need it; frameConn.sendLocked and frameConn.settle release it. No
// other lock is taken, and no I/O is done, while it is held: closing a frameTransport does not block.
// pendingFrame.wake and pendingOp.release take it, so they are called without it. A Network has no
// lock; its counters are atomic.
package transport
