package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// readiness is the health service. A check of readiness fails with the reason while the
// store takes no writes, or no puts, so that an operator, or a router of requests, learns it and the
// figures; reads are answered nevertheless. A server that is not ready for another reason says it in
// the trailer kvdpb.NotReadyTrailer.
type readiness struct {
	*health.Server
	api *api
}

// Check implements healthpb.HealthServer.
func (r *readiness) Check(ctx context.Context, q *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	if q.GetService() == kvdpb.HealthReadiness {
		if why := r.api.server.ReadOnly(); why != nil {
			return nil, statusError{why}
		}
		if why := r.api.unready.Load(); why != nil {
			_ = grpc.SetTrailer(ctx, metadata.Pairs(kvdpb.NotReadyTrailer, *why)) // the answer says that it is not ready
		}
	}
	return r.Server.Check(ctx, q)
}

// SetReady implements service.ReadinessWatcher.
func (a *api) SetReady(why error) {
	status := healthpb.HealthCheckResponse_SERVING
	a.unready.Store(nil)
	if why != nil {
		status = healthpb.HealthCheckResponse_NOT_SERVING
		a.unready.Store(new(why.Error()))
	}
	for _, name := range []string{
		"", kvdpb.HealthReadiness,
		kvdpb.KVService_ServiceDesc.ServiceName, kvdpb.TxnService_ServiceDesc.ServiceName,
	} {
		a.health.SetServingStatus(name, status)
	}
}
