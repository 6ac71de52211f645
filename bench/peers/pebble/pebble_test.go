package pebble

import (
	"testing"

	"github.com/kvd-db/kvd/bench/peers/peertest"
)

func TestKeepsTheObligations(t *testing.T) { peertest.Run(t, Open) }

func TestKeepsTheObligationsWithBlobFiles(t *testing.T) { peertest.Run(t, OpenBlob) }
