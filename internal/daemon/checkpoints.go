package daemon

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/replicated"
)

// filesOf fetches checkpoints of other nodes by the network.
func filesOf(n *peer.Network) func(context.Context, uint64, []byte) (replicated.Files, error) {
	return func(ctx context.Context, node uint64, token []byte) (replicated.Files, error) {
		files, err := n.Files(ctx, node, token)
		if err != nil {
			return nil, err
		}
		return files, nil
	}
}

// serveFiles lets other nodes fetch the checkpoints of a log by the network.
func serveFiles(n *peer.Network, log *replicated.Log) {
	n.ServeFiles(func(ctx context.Context, node uint64, token []byte) (peer.Checkpoint, error) {
		transfer, err := log.OpenCheckpoint(ctx, node, token)
		if err != nil {
			return nil, err
		}
		return transfer, nil
	})
}

// checkpointEvent logs a step of a checkpoint that is made, sent or fetched.
func (s *process) checkpointEvent(e replicated.Event) {
	var fields []zap.Field
	if e.Node != 0 {
		fields = append(fields, zap.Uint64("node", e.Node))
	}
	if e.Index != 0 {
		fields = append(fields, zap.Uint64("index", e.Index))
	}
	if e.Total != 0 {
		fields = append(fields, zap.Int64("bytes", e.Bytes), zap.Int64("of_bytes", e.Total))
	}
	if e.Took != 0 {
		fields = append(fields, zap.Duration("took", e.Took))
	}
	if e.Err != nil {
		s.log.Warn(e.What+" failed; it is tried again", append(fields, zap.Error(e.Err))...)
		return
	}
	s.log.Info(e.What, fields...)
}

// installs reports whether the service has ended because the node has received a checkpoint of
// another one: opening the store again installs it.
func (s *process) installs(ctx context.Context, err error) bool {
	if !errors.Is(err, replica.ErrInstall) || s.abandoned() || ctx.Err() != nil {
		return false
	}
	s.log.Info("the store is opened again, to install the checkpoint that was received")
	return true
}
