package scanbatch

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// A separated value counts with its full length, whether it is added or staged, and
// Replace puts it in place of its pointer.
func TestABatchOwesValuesThatAreApart(t *testing.T) {
	pointer := kv.ValuePointer{File: 7, Offset: 9, Length: 1000}
	apart := kv.Entry{Key: []byte("k"), Value: pointer.AppendTo(nil), Seq: 3, Kind: kv.KindPut, Apart: true}
	view := View{At: kv.MaxSeqNum}
	for name, add := range map[string]func(*Batch){
		"added": func(b *Batch) { b.Add(&apart, false) },
		"staged": func(b *Batch) {
			b.Stage(apart.Key)
			b.Version(&kv.Entry{Key: apart.Key, Value: []byte("old"), Seq: 2, Kind: kv.KindPut})
			b.Version(&apart)
			b.Commit(&view)
		},
	} {
		var b Batch
		b.Reset(10, 500, false)
		add(&b)
		require.True(t, b.Full(), name)
		require.Equal(t, []int32{0}, b.Apart, name)
		value := bytes.Repeat([]byte("v"), 1000)
		b.Replace(0, value)
		item := b.Items[0]
		require.Equal(t, "k", string(item.Key), name)
		require.Equal(t, value, item.Value, name)
		require.Equal(t, kv.SeqNum(3), item.Version, name)

		b.Reset(10, 500, true)
		add(&b)
		require.Empty(t, b.Apart, "%s: keys only", name)
	}
}
