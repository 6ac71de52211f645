// Package kvdpb is the wire protocol of kvd: the code that protoc generates from the
// .proto files, and the constants of its errors. The .proto files are the reference.
//
// Regenerate with scripts/proto.sh after a change; scripts/proto.sh --check fails if
// the generated code is stale.
package kvdpb
