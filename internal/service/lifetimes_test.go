package service_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// An old stream is told to move; it goes on being served until its client does,
// or until the grace period ends.
func TestAnOldPipelineIsToldToMove(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		life := service.Lifetimes{}
		life.StreamAge, life.CloseWait, life.ShutdownWait = 10*time.Millisecond, time.Hour, time.Hour
		if !leaves {
			life.CloseWait = 10 * time.Millisecond
		}
		s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{Lifetimes: life}, protocols...)
		l := bufconn.Listen(1 << 16)
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		conn := connect(t, l)
		ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
		stream, err := kvdpb.NewKVServiceClient(conn).Pipeline(ctx)
		require.NoError(t, err)

		r, err := stream.Recv()
		require.NoError(t, err)
		assert.True(t, r.GoingAway)
		if leaves {
			require.NoError(t, stream.Send(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{{Tag: 7}}}))
			r, err = stream.Recv()
			require.NoError(t, err)
			assert.Equal(t, "INVALID_REQUEST", r.Results[0].Status.Reason, "it is still served")
			require.NoError(t, stream.CloseSend())
			_, err = stream.Recv()
			require.ErrorIs(t, err, io.EOF)
		} else {
			_, err = stream.Recv()
			require.Equal(t, codes.Canceled, status.Code(err))
		}
		cancel()
		require.NoError(t, conn.Close())
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
	}
}
