package engine

import (
	"context"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/history"
	"github.com/kvd-db/kvd/internal/vfs"
)

// wholeKeys is how many keys a small history has.
const wholeKeys = 8

// wholeState is what a small store holds.
type wholeState [wholeKeys]history.Value

// wholeModel is a store that does one thing after the other. An operation is a
// *history.Op, of which it believes what was read and written, but no version:
// porcupine looks for an order of its own, and so it judges independently of
// history.Check.
var wholeModel = porcupine.Model{
	Init: func() any { return wholeState{} },
	Step: func(state, input, _ any) (bool, any) {
		now, op := state.(wholeState), input.(*history.Op)
		for _, r := range op.Reads {
			if !shows(now[r.Key], r.Value) {
				return false, now
			}
		}
		for _, s := range op.Scans {
			seen := s.Seen
			for k := s.From; k < s.To; k++ {
				want := history.Absent
				if len(seen) > 0 && seen[0].Key == k {
					want, seen = seen[0].Value, seen[1:]
				}
				if now[k] != want {
					return false, now
				}
			}
			if len(seen) > 0 {
				return false, now
			}
		}
		for _, w := range op.Writes {
			for k := w.Key; k < max(w.End, w.Key+1); k++ {
				now[k] = w.Value
			}
		}
		return true, now
	},
	DescribeOperation: func(input, _ any) string { return input.(*history.Op).String() },
}

func shows(held, seen history.Value) bool {
	if seen == history.Unseen {
		return held != history.Absent
	}
	return held == seen
}

// judgeWhole judges all but the reads of single keys, which are linearizable each
// for its key: TestCompareAndSetIsLinearizable looks at those.
func judgeWhole(logs ...*history.Log) porcupine.CheckResult {
	var operations []porcupine.Operation
	for _, l := range logs {
		ops := l.Ops()
		for i := range ops {
			if o := &ops[i]; o.Outcome == history.Done && o.Kind != history.Get {
				operations = append(operations, porcupine.Operation{
					ClientId: int(o.Client), Input: o, Call: o.Call, Return: o.Return,
				})
			}
		}
	}
	return porcupine.CheckOperationsTimeout(wholeModel, operations, testwait.Left())
}

func TestSmallHistoriesAreStrictlySerializable(t *testing.T) {
	histories := uint64(120)
	if testsize.Reduced() {
		histories = 25
	}
	conflicts := 0
	for seed := range histories {
		o := small(vfs.NewMem())
		if seed%2 == 1 {
			o.FS = slowSyncs(100 * time.Microsecond) // so that weaker writes overtake
		}
		o.FlushKeys = 20
		e := open(t, o)
		run := history.Run{
			Plan: history.Plan{
				Keys: wholeKeys, Span: 4, Start: time.Now(), Durabilities: []kv.Durability{kv.DurabilityMemory, kv.DurabilitySync},
			},
			Clients: 6, Transactions: 30, Seed: seed,
		}
		ctx, cancel := context.WithDeadline(t.Context(), testwait.Deadline())
		logs, tally, err := run.Do(ctx, engineStore{e})
		cancel()
		require.NoError(t, err)
		require.NoError(t, e.Close())
		require.Equal(t, porcupine.Ok, judgeWhole(logs...), "seed %d", seed)
		report := history.Check(wholeKeys, logs...)
		require.Zero(t, report.Count, "seed %d: %s", seed, report)
		conflicts += tally.Conflicts
	}
	require.Positive(t, conflicts)
}

// The checker must reject write skew, which no single key shows.
func TestWriteSkewIsNotStrictlySerializable(t *testing.T) {
	var l history.Log
	read := []history.Read{{Key: 1}, {Key: 2}}
	for i := range 2 {
		l.Add(history.Op{
			Kind: history.Commit, Outcome: history.Done, Client: uint16(i), Call: 1, Return: 10, Reads: read,
			Writes: []history.Write{{Key: history.Key(1 + i), Value: history.Value(1 + i)}},
		})
	}
	require.Equal(t, porcupine.Illegal, judgeWhole(&l))
}
