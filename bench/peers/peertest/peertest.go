// Package peertest checks that a store of the comparison does what peers.Store
// requires.
package peertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/peers"
)

// Run checks stores that open returns.
func Run(t *testing.T, open func(peers.Options) (peers.Store, error)) {
	o := peers.Options{Dir: t.TempDir(), MemoryBytes: 16 << 20}
	want := entries(5000)

	s, err := open(o)
	require.NoError(t, err)
	loaded := slices.Clone(want)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(loaded), func(i, j int) { loaded[i], loaded[j] = loaded[j], loaded[i] })
	for batch := range slices.Chunk(loaded, 999) {
		copied := make([]peers.Entry, len(batch))
		for i, e := range batch {
			copied[i] = peers.Entry{Key: slices.Clone(e.Key), Value: slices.Clone(e.Value)}
		}
		require.NoError(t, s.Load(copied))
		for _, e := range copied { // it borrowed them
			clear(e.Key)
			clear(e.Value)
		}
	}
	check(t, s, want, "loaded")
	require.NoError(t, s.Settle())
	check(t, s, want, "settled")
	require.NoError(t, s.Close())

	s, err = open(o)
	require.NoError(t, err)
	check(t, s, want, "opened again")
	require.NoError(t, s.Close())

	t.Run("sync", func(t *testing.T) { testPoints(t, open, true) })
	t.Run("buffered", func(t *testing.T) { testPoints(t, open, false) })
}

// entries returns n of them in order. Some values are empty.
func entries(n int) []peers.Entry {
	all := make([]peers.Entry, n)
	for i := range all {
		all[i] = peers.Entry{
			Key:   fmt.Appendf(nil, "key %06d", i),
			Value: slices.Repeat([]byte{byte(i)}, i%300),
		}
	}
	return all
}

func check(t *testing.T, s peers.Store, want []peers.Entry, when string) {
	t.Helper()
	requireGives(t, func(visit peers.Visit) error { return s.Forward(nil, visit) }, want, when+", forward")

	requireGives(t, func(visit peers.Visit) error { return s.Forward(want[1234].Key, visit) }, want[1234:], when+", from a key")
	requireGives(t, func(visit peers.Visit) error { return s.Forward(append(slices.Clone(want[1234].Key), 0), visit) }, want[1235:], when+", from between two keys")
	requireGives(t, func(visit peers.Visit) error { return s.Forward([]byte("z"), visit) }, nil, when+", from after the last")

	reversed := slices.Clone(want)
	slices.Reverse(reversed)
	requireGives(t, s.Backward, reversed, when+", backward")

	checkPages(t, s, want)

	for _, e := range []peers.Entry{want[0], want[299], want[300], want[4999]} { // the first one's is empty
		requireHas(t, s, string(e.Key), string(e.Value))
	}
	requireLacks(t, s, "key 001234!")
}

func requireGives(t *testing.T, walk func(peers.Visit) error, want []peers.Entry, what string) {
	t.Helper()
	seen := 0
	require.NoError(t, walk(func(key, value []byte) bool {
		require.Less(t, seen, len(want), "%s: goes on", what)
		require.Equal(t, string(want[seen].Key), string(key), what)
		require.Equal(t, string(want[seen].Value), string(value), "%s: %s", what, key)
		seen++
		return true
	}), what)
	require.Len(t, want, seen, "%s: ended early", what)

	seen = 0
	require.NoError(t, walk(func([]byte, []byte) bool { seen++; return seen < 3 }), what)
	require.Equal(t, min(3, len(want)), seen, "%s: goes on after the caller had enough", what)
}
