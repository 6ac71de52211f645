package grpcapi

import (
	"time"

	"google.golang.org/grpc/keepalive"

	"github.com/kvd-db/kvd/internal/service"
)

const (
	// maxStreamWindow is what the transport buffers of a stream before its handler
	// reads, if there is enough memory: sixteen full frames of the Go client. Guessed.
	maxStreamWindow = 1 << 20
	// minStreamWindow is what HTTP/2 has without a setting.
	minStreamWindow = 64 << 10
	// windowShare: as many streams may fill their windows before an account is full.
	windowShare = 256
	// connWindow bounds what one connection has under way to the server. In a
	// prototype it brought 8-10 % at few callers over gRPC's default of 64 KiB.
	connWindow = 4 << 20

	headerListBytes = 16 << 10
	streamsPerConn  = 256
)

// streamWindow is what the transport buffers of a stream with an account of so many bytes.
func streamWindow(account int64) int32 {
	return int32(min(max(account/windowShare, minStreamWindow), maxStreamWindow))
}

// longBytes is from which length on a message may not fit into a window: the transport gives
// back only what padding takes beyond a quarter.
func longBytes(account int64) int64 { return int64(streamWindow(account)) / 4 * 3 }

func keepaliveOf(t *service.Lifetimes) keepalive.ServerParameters {
	return keepalive.ServerParameters{
		MaxConnectionIdle: t.ConnIdle,
		// An old connection takes no new calls. It ends with its last one: pipelines have an age of
		// their own, and a backup or a scrub takes as long as its rate says.
		MaxConnectionAge: t.ConnAge,
		Time:             t.PingAfter,
		Timeout:          t.PingWait,
	}
}

var keepaliveEnforcement = keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}
