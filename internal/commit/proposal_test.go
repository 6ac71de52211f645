package commit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// A proposal that has read in a partition whose coordinator is closed is refused, although it writes in
// another one: the tree of the first may be closed too, and not tell what was written.
func TestAProposalDoesNotDependOnAClosedPartition(t *testing.T) {
	s := newFixture(t)
	all := s.members(t, 2)
	all[0].Close()
	read := Share{Coordinator: all[0]}
	read.Reads.Read(partition.ReadKey{Key: []byte("a"), Hash: keyhash.Sum([]byte("a"))}, 1)
	written := Share{Coordinator: all[1], Ops: []kv.Op{{Kind: kv.KindPut, Key: []byte("b")}}}
	settled := 0
	_, err := Propose(&Proposal{Shares: []Share{read, written}, Settled: func() { settled++ }})
	require.ErrorIs(t, err, kv.ErrClosed)
	require.Equal(t, 1, settled)
}
