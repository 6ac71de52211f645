package grpcapi

import (
	"context"

	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// readiness is the health service. A check of readiness fails with the reason while the
// store takes no writes, or no puts, so that an operator, or a router of requests, learns it and the
// figures; reads are answered nevertheless.
type readiness struct {
	*health.Server
	server *service.Server
}

// Check implements healthpb.HealthServer.
func (r *readiness) Check(ctx context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if q.GetService() == kvdpb.HealthReadiness {
		if why := r.server.ReadOnly(); why != nil {
			return nil, statusError{why}
		}
	}
	return r.Server.Check(ctx, q)
}

// SetReady implements service.ReadinessWatcher.
func (a *api) SetReady(ready bool) {
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if ready {
		status = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{
		"", kvdpb.HealthReadiness,
		kvdpb.KVService_ServiceDesc.ServiceName, kvdpb.TxnService_ServiceDesc.ServiceName,
	} {
		a.health.SetServingStatus(name, status)
	}
}
