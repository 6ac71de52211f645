//go:build rocksdb

package rocksdb

import (
	"testing"

	"github.com/kvd-db/kvd/bench/peers/peertest"
)

func TestKeepsTheObligations(t *testing.T) { peertest.Run(t, Open) }
