package kvdtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// A client that knows several nodes of a cluster, and not the one that leads, writes and commits.
func TestAClientOfNodesThatDoNotLead(t *testing.T) {
	c := NewCluster(t, 3)
	leader := c.Leader()
	others := slices.Delete(slices.Clone(c.nodes), leader, leader+1)
	db := c.open(others, nil)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.Put(t.Context(), []byte("a"), []byte("1")))
	require.NoError(t, db.Update(t.Context(), func(tx *kvd.Txn) error {
		_, err := tx.GetMany(t.Context(), [][]byte{[]byte("a"), []byte("b")})
		return errors.Join(err, tx.Put(t.Context(), []byte("b"), []byte("2")))
	}))
	value, err := c.Client().Get(t.Context(), []byte("b"))
	require.NoError(t, err)
	require.Equal(t, "2", string(value))
}

// A pipeline of such a client, too: one write is forwarded and, as that works, the others. Its reads are
// answered by the nodes that it knows.
func TestAPipelineOfAClientOfNodesThatDoNotLead(t *testing.T) {
	c := NewCluster(t, 3)
	leader := c.Leader()
	db := c.open(slices.Delete(slices.Clone(c.nodes), leader, leader+1), nil)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.Put(t.Context(), []byte("old"), []byte("1")))
	p := db.Pipeline()
	var writes []*kvd.Pending[kvd.Written]
	for i := range 200 {
		writes = append(writes, p.Put(fmt.Append(nil, i), []byte("x"), kvd.IfAbsent()))
	}
	read := p.Get([]byte("old"))
	replaced := p.Delete([]byte("old"), kvd.ReturnPrevious())
	require.NoError(t, p.Do(t.Context()))
	value, err := read.Result()
	require.NoError(t, err)
	require.Equal(t, "1", string(value))
	deleted, err := replaced.Result()
	require.NoError(t, err)
	require.Equal(t, "1", string(deleted.Previous.Value))
	versions := make(map[uint64]bool)
	for _, w := range writes {
		written, err := w.Result()
		require.NoError(t, err, "written once: a second time its condition would not hold")
		versions[written.Version] = true
	}
	require.Len(t, versions, len(writes))
	require.NoError(t, c.Client().View(t.Context(), func(s *kvd.Snapshot) error {
		n := 0
		for _, err := range s.Scan(t.Context(), kvd.All()) {
			if err != nil {
				return err
			}
			n++
		}
		require.Equal(t, len(writes), n)
		return nil
	}))
}
