package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// readiness is the health service. A check of readiness fails with the reason while the
// store takes no writes, or no puts, so that an operator, or a router of requests, learns it and the
// figures; reads are answered nevertheless.
type readiness struct {
	*health.Server
	store Store
}

// Check implements healthpb.HealthServer.
func (r *readiness) Check(ctx context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if store, ok := r.store.(interface{ ReadOnly() error }); ok && q.GetService() == kvdpb.HealthReadiness {
		if why, full := errors.AsType[*kv.ReadOnlyError](store.ReadOnly()); full {
			return nil, readOnlyFailure(why)
		}
	}
	return r.Server.Check(ctx, q)
}
