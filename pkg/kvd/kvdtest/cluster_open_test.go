package kvdtest

import (
	"errors"
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
