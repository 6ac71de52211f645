package transport

import (
	"context"

	"google.golang.org/grpc"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// SetSetting implements backend.Backend.
func (c *Network) SetSetting(ctx context.Context, name, value string) (before, after string, err error) {
	var r *kvdpb.SetSettingResponse
	err = c.unary(ctx, callTimer{}, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = kvdpb.NewAdminServiceClient(conn.grpc).SetSetting(ctx, &kvdpb.SetSettingRequest{Name: name, Value: value}, opts...)
		return err
	})
	return r.GetBefore(), r.GetAfter(), err
}
