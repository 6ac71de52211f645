package engine

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A write that is sent again, and asks for a sync, is not acknowledged before the first attempt, which
// asked for none, is synced: not even if the context of the caller ends at that moment.
func TestAWriteThatIsSentAgainIsNotAcknowledgedUnsynced(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, again := range map[string]func(e *Engine, key []byte, o kv.WriteOptions) error{
		"Put": func(e *Engine, key []byte, o kv.WriteOptions) error {
			_, err := e.Put(ended, key, []byte("1"), o)
			return err
		},
		"Write": func(e *Engine, key []byte, o kv.WriteOptions) error {
			w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: key, Value: []byte("1")}, Durability: o.Durability, RequestID: o.RequestID}
			other := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("other")}, Durability: kv.DurabilityMemory}
			if err := e.Write(ended, []*kv.Write{&w, &other}); err != nil {
				return err
			}
			return w.Err
		},
		"Apply": func(e *Engine, key []byte, o kv.WriteOptions) error {
			var b kv.WriteBatch
			b.Put(key, []byte("1"))
			_, err := e.Apply(ended, &b, o)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, unhurried(vfs.NewMem()))
			for i := range 64 { // of those for which both the answer and the end of ctx are there, some take the answer
				id := kv.RequestID{ClientID: 1, Sequence: uint64(i + 1)}
				_, err := e.Put(t.Context(), []byte(key(i)), []byte("1"), kv.WriteOptions{Durability: kv.DurabilityMemory, RequestID: id})
				require.NoError(t, err)
				end := e.log.End()
				id.Retried = true
				err = again(e, []byte(key(i)), kv.WriteOptions{Durability: kv.DurabilitySync, RequestID: id})
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
					continue
				}
				require.GreaterOrEqual(t, e.log.Synced(), end, "attempt %d was acknowledged as synced", i)
			}
		})
	}
}
