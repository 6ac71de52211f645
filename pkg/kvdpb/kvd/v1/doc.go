// Package kvdpb is the wire protocol of kvd: what protoc makes of kv.proto, and
// the stable words of its errors. kv.proto is the reference.
//
// Regenerate with scripts/proto.sh after a change; scripts/proto.sh --check
// fails if the generated code is stale.
package kvdpb
