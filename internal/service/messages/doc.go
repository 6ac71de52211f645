// Package messages performs the requests of kv.proto that more than one protocol carries: it
// translates a message into a call of service.Server, and the result into the message that
// answers it. grpcapi has such a message from gRPC, frameapi from a call in a frame, and forward
// from another node, so a request means the same and fails alike in all.
package messages
