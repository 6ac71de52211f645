package partition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

// Whoever comes late to a closed partition is told so, and neither waits for ever
// nor learns that a key is absent.
func TestAClosedPartitionSaysSo(t *testing.T) {
	s := newScript(t)
	s.run("put a=1\nflush\nput b=2")
	require.NoError(t, s.p.Close())
	key := []byte("a")
	late := func() *kv.Lookup { return &kv.Lookup{Key: key, Hash: keyhash.Sum(key)} }

	r := late()
	require.NoError(t, s.p.Lookup(t.Context(), []*kv.Lookup{r}, nil))
	require.ErrorIs(t, r.Err, kv.ErrClosed)
	r = late()
	LookupAt([]ReadShare{{Partition: s.p, Reads: []*kv.Lookup{r}}}, kv.MaxSeqNum, 0)
	require.ErrorIs(t, r.Err, kv.ErrClosed)

	var w Walk
	w.Open(s.p, kv.MaxSeqNum, 0, kv.Range{}, false)
	require.False(t, w.Fill(new(kv.Batch)))
	require.ErrorIs(t, w.Err(), kv.ErrClosed)
	require.ErrorIs(t, w.Close(), kv.ErrClosed)

	reads := Reads{At: 1, Keys: []ReadKey{{Key: key, Hash: keyhash.Sum(key)}}}
	require.ErrorIs(t, s.p.Refresh(&reads), kv.ErrClosed)
	_, err := Propose(&Proposal{
		Shares: []Share{{Partition: s.p, Ops: []kv.Op{{Kind: kv.KindDelete, Key: key}}}}, Settled: func() {},
	})
	require.ErrorIs(t, err, kv.ErrClosed)
}
