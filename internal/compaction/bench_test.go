package compaction

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/memtable"
)

const benchEntries = 100_000

func benchEntry(i, valueBytes int) kv.Entry {
	return kv.Entry{Key: fmt.Appendf(nil, "key-%012d", i), Value: bytes.Repeat([]byte{byte(i)}, valueBytes), Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}
}

// runAgain measures a job on files in memory, so processor time only.
func runAgain(b *testing.B, s *shelf, job Job) {
	for b.Loop() {
		got, err := Run(b.Context(), job)
		require.NoError(b, err)
		for _, t := range got.Tables {
			require.NoError(b, s.Remove(manifest.FileTable, t.Num))
		}
		for _, v := range got.Values {
			require.NoError(b, s.Remove(manifest.FileValues, v.Num))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries, "ns/entry")
}

// BenchmarkRun merges four deltas of interleaved keys, with inline or separated values.
func BenchmarkRun(b *testing.B) {
	for _, separated := range []bool{false, true} {
		s := newShelf(b)
		var runs [4][]kv.Entry
		for i := range benchEntries {
			e := benchEntry(i, 100)
			if separated {
				e.Apart = true
				e.Value = kv.ValuePointer{File: 1000 + 2*kv.FileNum(i%40), Offset: uint64(i) * 1032, Length: 1024}.AppendTo(nil)
			}
			runs[i%4] = append(runs[i%4], e)
		}
		c := Choice{Kind: manifest.CompactDeltas}
		for _, entries := range runs {
			c.Deltas = append(c.Deltas, s.put(benchEntries/4, entries...))
		}
		b.Run(fmt.Sprintf("separated=%t", separated), func(b *testing.B) {
			runAgain(b, s, Job{Choice: c, Open: s.Open, Outputs: s, Values: ValueRule{Threshold: 256}})
		})
	}
}

// BenchmarkFlush writes a memtable, without its sort, with inline or separated values.
func BenchmarkFlush(b *testing.B) {
	for _, valueBytes := range []int{100, 1024} {
		b.Run(fmt.Sprintf("value=%d", valueBytes), func(b *testing.B) {
			s := newShelf(b)
			table := memtable.New(memtable.Options{})
			for seq, i := range rand.New(rand.NewPCG(1, 2)).Perm(benchEntries) {
				e := benchEntry(i, valueBytes)
				e.Seq = kv.SeqNum(seq + 1)
				table.Add(keyhash.Sum(e.Key), &e)
			}
			table.Seal()
			require.NoError(b, table.NewIterator().Close())
			runAgain(b, s, Job{
				Choice:  Choice{Kind: manifest.Flush, Deltas: []manifest.Run{{{Num: 1, Entries: benchEntries}}}},
				Open:    func(*kv.TableMeta) (kv.Iterator, error) { return table.NewIterator(), nil },
				Outputs: s, Values: ValueRule{Threshold: 256},
			})
		})
	}
}
