package pebble

import (
	"testing"

	"github.com/kvd-db/kvd/bench/peers/peertest"
)

func TestKeepsTheObligations(t *testing.T) { peertest.Run(t, Open) }

func TestKeepsTheObligationsWithSmallBlocks(t *testing.T) { peertest.Run(t, OpenSmall) }

func TestKeepsTheObligationsWithBlobFiles(t *testing.T) { peertest.Run(t, OpenBlob) }

func TestKeepsTheObligationsWithSmallBlocksAndBlobFiles(t *testing.T) {
	peertest.Run(t, OpenSmallBlob)
}
