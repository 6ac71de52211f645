// Package frame encodes and decodes by hand what kvd's data plane is made of:
// the two messages of the Pipeline stream, PipelineRequest and PipelineResponse
// of kv.proto, in the protobuf wire format; and compact frames, a format of its
// own for the same operations.
//
// Why by hand: generated code allocates an object per operation, per oneof, per
// key and per value. A frame of 64 operations is some 300 objects on each side,
// and their allocation, not the network, then bounds the throughput of small
// operations. Here a frame is one buffer and one slice of flat structs that is
// used again, and keys and values point into the buffer.
//
// Of the messages the generated code remains the judge: tests and fuzzers decode
// what this package encodes with it, and the other way round.
//
// # Compact frames, format version 1
//
// In protobuf an operation is three messages inside each other, whose lengths
// must be known before they are written. A compact frame says once what holds of
// all its operations, and each of them is written in one go as it arrives.
// Numbers are little endian, a uvarint is that of encoding/binary, and bytes are
// a uvarint length and as many bytes.
//
// A frame is carried either by a field of the messages, so that any client of
// gRPC can send it with generated code, or by itself over a connection. A content
// subtype of its own for gRPC was considered: the codec here makes the field as
// cheap.
//
// A connection begins with the eight bytes of [Preamble], of which the last is the
// version; the server answers with its own, which is not newer, and only then may
// the client send frames. No other protocol that the server speaks begins with a
// zero. In TLS the protocol is called [ALPN], and the preamble is sent there too.
//
//	offset  bytes
//	0       4       length of all that follows
//	4       1       kind: 1 reads, 2 writes; 0x81 answers, 0x82 going away, 0x83 refused
//	5       1       flags
//	6       2       operations or results, 1 to 1024; of going away 0, of refused 1
//	8       4       id: chosen by the client, unique among its frames under way; answers repeat it
//	12      4       requests: time left in ms to every operation, 0 is the server's default
//	                answers: position in the request of the first result
//	16      4       zero
//
//	flags of requests
//	bit 0           writes are named: client id (8 bytes) and base of sequence numbers (8 bytes) follow
//	bit 1           the answer is to have timings
//	bits 2, 3       durability of all writes: 0 the server's default, 1 memory, 2 buffered, 3 sync
//	bit 4           all reads are to be answered at one version
//
//	flags of answers
//	bit 0           sparse: before each result a uvarint, the positions left out since the one before it
//	bit 1           timings follow: their number (1 byte), and each as uvarint nanoseconds, see [Timing]
//
// Then the operations or the results. Each begins with a head:
//
//	head of a read
//	bits 0, 1       1 get, 0 skipped get
//	bit 6           uvarint: version to read at
//	bit 5           8 bytes: epoch of that version; only beside bit 6
//	bit 7           uvarint: its own time left in ms
//	                key as bytes
//
//	head of a write
//	bits 0, 1       1 put, 2 delete, 3 skipped put, 0 skipped delete
//	bit 2           uvarint: time to live in ms, of puts
//	bit 3           condition: its kind (1 byte, see [ConditionKind]), then a version as uvarint or a value as bytes
//	bit 4           return what the key held
//	bit 5           uvarint: sequence number minus the base, modulo 2^64
//	bit 6           retried; uvarint: known version
//	bit 7           uvarint: its own time left in ms
//	                key as bytes, of puts also value as bytes
//
//	head of a result
//	bits 0, 1       0 done: uvarint version
//	                1 item: uvarint version, uvarint its own version, uvarint time to live if bit 2, value as bytes
//	                2 not found: uvarint version
//	                3 failed: uvarint code, uvarint version, uvarint ms to wait, reason as bytes, message as bytes
//	bit 2           the item has a time to live
//	bit 3           the write had been applied before
//	bit 4           skipped; nothing follows, and the other bits are zero
//
// What a part needs follows its head in the order of this table. An operation is
// skipped whose caller gave it up before it was sent: only its head changes. Every
// operation has one result, those that were skipped too, in the order of their
// positions within a frame of answers; there may be several such frames for one of
// requests, in any order.
//
// The smallest write, put k=v, and its place in the layout:
//
//	15 00 00 00 | 02 | 00 | 01 00 | 01 00 00 00 | 00 00 00 00 | 00 00 00 00 | 01 | 01 6b | 01 76
//	length      kind flags  count   id            timeout       zero          put   k       v
//
// After going away (0x82) the client sends no more frames and gets the answers to
// those under way. After refused (0x83) the connection is closed. Flags and bits
// without a meaning here, other kinds, an empty key, and bytes behind the last part
// are errors: the frame is malformed, and whoever sent it is not heard further.
package frame
