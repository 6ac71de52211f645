// Package grpcapi serves the service of the protos by gRPC.
package grpcapi
