package kvdtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

// What was acknowledged stays while each node in turn is killed or cut off, and every node shows
// it in the end.
func TestAClusterLosesNothing(t *testing.T) {
	c := kvdtest.NewCluster(t, 3)
	written := 0
	write := func() {
		for range 10 {
			require.NoError(t, c.Client().Put(t.Context(), fmt.Appendf(nil, "key %03d", written), []byte("v")))
			written++
		}
	}
	write()
	leader := c.Leader()
	c.Kill(leader)
	write()
	require.NotEqual(t, leader, c.Leader())
	c.Start(leader)
	write()
	leader = c.Leader()
	c.Isolate(leader)
	write()
	c.Heal()
	write()
	for i := range 3 {
		testwait.Until(t, func() bool { // an election may come between
			count := 0
			for _, err := range c.Open(i).Scan(t.Context(), kvd.All()) {
				if err != nil {
					t.Log(err)
					return false
				}
				count++
			}
			require.Equal(t, written, count)
			return true
		})
	}
}

// A client of any node reads and writes, as long as the node reaches the leader.
func TestAClientOfOneNodeOfACluster(t *testing.T) {
	c := kvdtest.NewCluster(t, 3)
	other := (c.Leader() + 1) % 3
	db := c.Open(other)
	key := []byte("a")
	testwait.Until(t, func() bool { return db.Put(t.Context(), key, []byte("1")) == nil }) // an election may come between
	var got []byte
	var err error
	testwait.Until(t, func() bool { // a stale read may miss what the node has not applied yet
		got, err = db.Get(t.Context(), key, kvd.Stale(time.Hour))
		return !errors.Is(err, kvd.ErrNotFound)
	})
	require.NoError(t, err)
	require.Equal(t, "1", string(got))
	c.Isolate(other)
	testwait.Until(t, func() bool { // if it leads just now, it has to notice first
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return errors.Is(db.Put(ctx, key, []byte("2")), kvd.ErrReadOnly)
	})
	got, err = db.Get(t.Context(), key, kvd.Stale(time.Hour))
	require.NoError(t, err, "what it has")
	require.NotEmpty(t, got)
	c.Heal()
	testwait.Until(t, func() bool { return db.Put(t.Context(), key, []byte("3")) == nil })
}

// What a client of one node writes while the cluster elects a leader is written once it has one.
func TestAClientOfOneNodeWritesThroughElections(t *testing.T) {
	c := kvdtest.NewCluster(t, 3)
	leader := c.Leader()
	one, other := c.Open((leader+1)%3), c.Open((leader+2)%3)
	p := one.Pipeline()
	for i := range 200 {
		p.Put(fmt.Append(nil, i), nil)
	}
	c.Kill(leader)
	done := make(chan error, 1)
	go func() { done <- p.Do(t.Context()) }()
	require.NoError(t, other.Put(t.Context(), []byte("k"), nil))
	require.NoError(t, <-done)
	c.Start(leader)
	leader = c.Leader()
	db := c.Open((leader + 1) % 3)
	c.Kill(leader)
	require.NoError(t, db.Update(t.Context(), func(tx *kvd.Txn) error {
		_, err := tx.Get(t.Context(), []byte("k"))
		return errors.Join(err, tx.Put(t.Context(), []byte("k"), []byte("x")))
	}))
}

// A cluster without a majority acknowledges nothing, and goes on when it has one again.
func TestAClusterWithoutAMajority(t *testing.T) {
	c := kvdtest.NewCluster(t, 3)
	require.NoError(t, c.Client().Put(t.Context(), []byte("a"), nil))
	leader := c.Leader()
	c.Kill((leader + 1) % 3)
	c.Kill((leader + 2) % 3)
	put := make(chan error, 1)
	go func() { put <- c.Client().Put(t.Context(), []byte("b"), nil) }()
	c.Start((leader + 1) % 3)
	require.NoError(t, <-put)
	_, err := c.Client().Get(t.Context(), []byte("a"))
	require.NoError(t, err)
}
