// Package grpcapi serves the services of the protos by gRPC. It decodes requests, has
// package service perform them and encodes the answers; it has no rules about data.
//
// # The way of a unary call
//
//	handover     gRPC gets a connection whose handshake is over (grpc.go)
//	http2Conn    follows the frames in both directions; ends floods (http2_conn.go)
//	admit        gRPC's tap: the call waits for its request and is charged for what has come;
//	             a call without a deadline gets one (call.go)
//	receive      refuses a request that is too long by its announced length, and has long
//	             requests come one after the other (receive.go, intake.go)
//	unary        a call too many is refused; charges memory, counts, contains panics
//	             (interceptors.go)
//	Get, Put ..  translates, and calls service.Server (read.go, write.go, txn.go)
//	forwarded    has the node that leads perform a write that this one refuses (package forward)
//	errorOf      makes a service.Error a status with ErrorInfo and RetryInfo (status.go)
//
// A Pipeline stream is a Transport of package frameapi (stream.go). A Scan sends chunks at
// the pace of its client's flow control (scan.go).
//
// # Promises
//
//	G1. A call is charged for what has come of its request, not for what it announces: 256
//	    bytes for each DATA frame beside its bytes.
//	G2. A unary request that does not fit into the window of its stream gets a larger window
//	    only once it has a place in the intake and there is memory for it. Connections take
//	    turns, and a request that is announced and does not come loses its place within a
//	    second or so.
//	G3. While the transport has more than a quarter of the memory for answers to unary calls
//	    of a connection, its calls are refused; a connection with an answer that is not read
//	    for as long as a default deadline is ended. An answer that gRPC drops gives its
//	    memory back, and ends no connection (unread.go).
//	G4. Beside calls a client may send 10,000 frames at once, 1,000 a second, one for each 256
//	    bytes that were sent or received, three for each DATA frame that was sent, and one for
//	    each PING or SETTINGS frame that it has to acknowledge. Beyond that, and beyond the
//	    bound of streams that are reset, the connection ends with GOAWAY (ENHANCE_YOUR_CALM).
//	G5. A refused connection is served so far that each of its calls is told why.
//	G6. Health checks have bounds of their own.
//
// gRPC itself bounds the header list with its CONTINUATION frames, pings, and what it queues
// for a client that does not read.
//
// It costs a look at the header of each HTTP/2 frame, for a unary call two entries in a list,
// and for an answer with values a note for the garbage collector. A connection that idles holds
// no read buffer on a plain socket (ready.go).
package grpcapi
