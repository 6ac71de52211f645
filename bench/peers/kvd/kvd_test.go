package kvd

import (
	"testing"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/peers/peertest"
)

func TestKeepsTheObligations(t *testing.T) {
	peertest.Run(t, func(o peers.Options) (peers.Store, error) { return Open(o, 4) })
}
