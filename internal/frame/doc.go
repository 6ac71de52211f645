// Package frame encodes and decodes the messages of kvd's data plane by hand:
// PipelineRequest and PipelineResponse of kv.proto, in the protobuf wire format, and
// compact frames, a separate format for the same operations.
//
// Generated code allocates an object per operation, per oneof, per key and per value. A
// frame of 64 operations is some 300 objects on each side, and their allocation, not
// the network, then bounds the throughput of small operations. Here a frame is one
// buffer and one reused slice of flat structs, and keys and values point into the
// buffer.
//
// The generated code defines what is correct for the two messages: tests and fuzzers
// decode with it what this package encodes, and the other way round.
//
// # Compact frames, format versions 1 to 4
//
// In protobuf an operation is three nested messages, whose lengths must be known before
// they are written. A compact frame states what its operations have in common once, and
// each operation is appended as it arrives. Numbers are little-endian, a uvarint is
// that of encoding/binary, and "bytes" are a uvarint length followed by as many bytes.
//
// A frame is carried either in a field of the messages, so that any gRPC client can
// send it with generated code, or by itself over a connection. A content subtype of its
// own for gRPC was rejected: the codec here makes the field as cheap.
//
// A connection begins with the eight bytes of [Preamble]; the last byte is the version.
// The server answers with its own preamble, whose version is not newer, and only then
// may the client send frames. No other protocol that the server speaks begins with a
// zero byte. In TLS the protocol is called [ALPN], and the preamble is sent there too.
//
//	offset  bytes
//	0       4       length of all that follows
//	4       1       kind: 1 reads, 2 writes, 4 calls; 0x81 answers, 0x82 going away, 0x83 refused
//	5       1       flags
//	6       2       number of operations or results, 1 to 1024; going away 0, refused 1
//	8       4       id: chosen by the client, unique among its frames in flight; answers repeat it
//	12      4       requests: time left in ms for every operation, 0 is the server's default
//	                answers: position in the request of the first result
//	16      4       zero
//
//	flags of requests
//	bit 0           named writes: client id (8 bytes) and base of sequence numbers (8 bytes) follow
//	bit 1           the answer must have timings
//	bits 2, 3       durability of all writes: 0 the server's default, 1 memory, 2 buffered, 3 sync
//	bit 4           all reads must be answered at one version
//
//	flags of answers
//	bit 0           sparse: a uvarint precedes each result: how many positions were left out before it
//	bit 1           timings follow: their number (1 byte), and each as uvarint nanoseconds, see [Timing]
//
// The operations or the results follow. Each begins with a head:
//
//	head of a read
//	bits 0, 1       1 get, 0 skipped get
//	bit 6           uvarint: version to read at
//	bit 5           8 bytes: epoch of that version; requires bit 6
//	bit 7           uvarint: its own time left in ms
//	                key as bytes
//
//	head of a write
//	bits 0, 1       1 put, 2 delete, 3 skipped put, 0 skipped delete
//	bit 2           uvarint: time to live in ms, of puts
//	bit 3           condition: its kind (1 byte, see [ConditionKind]), then a version as uvarint or a value as bytes
//	bit 4           return the previous item
//	bit 5           uvarint: sequence number minus the base, modulo 2^64
//	bit 6           retried; uvarint: known version
//	bit 7           uvarint: its own time left in ms
//	                key as bytes, of puts also value as bytes
//
//	head of a result
//	bits 0, 1       0 done: uvarint version
//	                1 item: uvarint version, uvarint version of the item, uvarint time to live if bit 2, value as bytes
//	                2 not found: uvarint version
//	                3 failed: uvarint code, uvarint version, uvarint ms to wait, reason as bytes, message as bytes
//	bit 2           the item has a time to live
//	bit 3           an earlier attempt at the write was applied
//	bit 4           skipped; nothing follows, and the other bits are zero
//
// The fields of an operation or result follow its head in the order of this table. An
// operation is skipped if its caller gave it up before it was sent: only the head
// changes. Every operation has one result, including those that were skipped. The
// results of a frame of answers are in the order of their positions. A frame of
// requests may have several frames of answers, in any order.
//
// The smallest write, put k=v, and its place in the layout:
//
//	15 00 00 00 | 02 | 00 | 01 00 | 01 00 00 00 | 00 00 00 00 | 00 00 00 00 | 01 | 01 6b | 01 76
//	length      kind flags  count   id            timeout       zero          put   k       v
//
// # Version 2: signing in
//
// A client that has a token asks for version 2. If the server answers with version 2, the
// client's first frame is a sign-in, kind 3, and all else is as in version 1. The server
// answers it only if it refuses the client: with refused, whose reason is UNAUTHENTICATED. So
// a client need not wait for an answer. A server that answers with version 1 knows no tokens.
// A client without a token, or with a certificate in place of one, speaks version 1.
//
//	sign-in         all of its header but length and kind is zero; at most 1 KiB
//	                token as bytes
//
// # Version 3: calls
//
// In version 3 the client's first frame is a sign-in, too, whose token is empty if the client
// has none. A client that has no token, asks for version 3 and is answered with version 2 opens
// another connection, for version 1. In version 3 the client may also send frames of calls, kind 4, which have no flags. A call carries the
// request message of a method of kv.proto, and its answer is an item without a version, whose
// value is the response message; the version of the answer is that of the message. A failed call
// has the figures that gRPC has in the metadata of an ErrorInfo.
//
//	head of a call
//	bits 0-3        method: 1 Write, with atomic set; 2 Commit, 3 Execute, 4 BeginSnapshot, 5 KeepSnapshot, 6 ReleaseSnapshot
//	bit 4           skipped
//	bit 7           uvarint: its own time left in ms
//	                request message as bytes
//
//	head of a result that failed
//	bit 2           figures follow the message: their number (1 byte, 1 to 16), and of each name and value as bytes
//
// # Version 4: the incarnation of a cluster
//
// Version 4 is version 3, and the server says after its preamble which incarnation of its cluster it
// belongs to: the number of bytes (1 byte, at most 64) and a text, as in the metadata "kvd-incarnation"
// of kv.proto; no bytes if it belongs to no cluster. A client that knows another one closes the
// connection.
//
// # Ends
//
// After going away (0x82) the client sends no more frames and receives the answers to
// those in flight. After refused (0x83) the connection is closed. A server refuses with the reason
// TOO_LARGE, because a frame is, only after it has answered all frames before that one, and performs
// none after it: a client takes what has no answer then as not done. Undefined flags and
// bits, other kinds, an empty key, and bytes after the last part are errors: the frame
// is malformed, and the receiver closes the connection.
package frame
