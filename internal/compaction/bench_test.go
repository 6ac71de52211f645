package compaction

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

func BenchmarkRun(b *testing.B) {
	s := newShelf(b)
	var runs [4][]kv.Entry
	for i := range 100_000 {
		e := kv.Entry{Key: fmt.Appendf(nil, "key-%012d", i), Value: bytes.Repeat([]byte{byte(i)}, 100), Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}
		runs[i%4] = append(runs[i%4], e)
	}
	var c Choice
	for _, entries := range runs {
		c.Deltas = append(c.Deltas, s.put(25_000, entries...))
	}
	c.Kind = manifest.CompactDeltas
	for _, verify := range []bool{false, true} {
		b.Run(fmt.Sprintf("verify=%t", verify), func(b *testing.B) {
			b.SetBytes(int64(c.Bytes()))
			for b.Loop() {
				got, err := Run(b.Context(), Job{Choice: c, Open: s.Open, Outputs: s, Verify: verify})
				require.NoError(b, err)
				for _, t := range got.Tables {
					require.NoError(b, s.Remove(manifest.FileTable, t.Num))
				}
			}
		})
	}
}
