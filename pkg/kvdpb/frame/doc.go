// Package frame encodes and decodes the two messages of the Pipeline stream by
// hand: PipelineRequest and PipelineResponse of kv.proto, in the
// protobuf wire format, so that a client in any language can speak to the server
// and kvd's own need not know which of the two it talks to.
//
// Why by hand: generated code allocates an object per operation, per oneof, per
// key and per value. A frame of 64 operations is some 300 objects on each side,
// and their allocation, not the network, then bounds the throughput of small
// operations. Here a frame is one buffer from gRPC's pool and one slice of flat
// structs that is used again, and keys and values point into the buffer.
//
// The generated code remains the judge: tests and fuzzers decode what this
// package encodes with it, and the other way round.
package frame
