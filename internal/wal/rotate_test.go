package wal

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

type silentWaker struct{}

func (silentWaker) Wake()     {}
func (silentWaker) RunReady() {}

// While one writer creates the next segment itself, another one that asks for a sync must
// not begin to prepare a successor of the same segment: the log continued in the first,
// then in the second, and could not be opened again.
func TestOneSegmentHasOneSuccessor(t *testing.T) {
	fs := vfs.NewMem()
	o := Options{FS: fs, Dir: "wal", StoreID: 1, SegmentBytes: 1024, Fresh: true}
	var records uint64
	for range 25 {
		seen := uint64(0)
		l, _, err := Open(o, func(Record) error { seen++; return nil })
		require.NoError(t, err)
		require.Equal(t, records, seen)
		o.Fresh = false
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				for i := range 6 {
					level := kv.DurabilitySync
					if (w+i)%2 == 0 {
						level = kv.DurabilityBuffered
					}
					_, pos, err := appendTo(l, bytes.Repeat([]byte{1}, 300), 1, level, silentWaker{}, nil)
					if err == nil {
						l.Flush()
						err = l.WaitSynced(context.Background(), pos)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		writers.Wait()
		records += 24
		require.NoError(t, l.Close())
	}
}
