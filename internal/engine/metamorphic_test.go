package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// TestOptionsChangeNoAnswer does the same random steps under many sets of options,
// which must give the same answers: values, what is absent, expiry, order, outcomes
// of conditions, transactions and names, and which step wrote what. Version numbers
// themselves are not compared, nor whether a name was forgotten or recognised.
//
// KVD_METAMORPHIC=n does n lists of steps, from seed KVD_METAMORPHIC_SEED on.
func TestOptionsChangeNoAnswer(t *testing.T) {
	t.Parallel()
	lists, seed, sets := 4, 1, 8
	if testsize.Reduced() {
		lists, sets = 1, 4
	}
	for name, n := range map[string]*int{"KVD_METAMORPHIC": &lists, "KVD_METAMORPHIC_SEED": &seed} {
		if s := os.Getenv(name); s != "" {
			var err error
			*n, err = strconv.Atoi(s)
			require.NoError(t, err)
		}
	}
	for i := seed; i < seed+lists; i++ {
		rng := rand.New(rand.NewPCG(uint64(i), 0))
		steps := make([]step, 80)
		for n := range steps {
			steps[n] = drawStep(rng, n)
		}
		plain := Options{Partitions: 1}
		want := answers(t, steps, plain)
		for set := range sets {
			o := rapid.Custom(drawOptions).Example(i*sets + set)
			if parting(want, answers(t, steps, o)) == "" {
				continue
			}
			for n := len(steps) - 1; n >= 0; n-- { // leave out what is not needed
				fewer := slices.Delete(slices.Clone(steps), n, n+1)
				if parting(answers(t, fewer, plain), answers(t, fewer, o)) != "" {
					steps = fewer
				}
			}
			t.Fatalf("list %d under %+v:\n%s", i, o, parting(answers(t, steps, plain), answers(t, steps, o)))
		}
	}
}

// parting returns where two lists of answers part, or nothing.
func parting(left, right []string) string {
	for i := range left {
		if left[i] != right[i] {
			return strings.Join(left[:i], "\n") + "\ngives\n" + left[i] + "\nor\n" + right[i]
		}
	}
	return ""
}

// answers does the steps on a new store.
func answers(t *testing.T, steps []step, o Options) (lines []string) {
	inBubble(t, func() {
		r := &replica{t: t, opts: o, disk: vfs.NewMem(), time: newTestTime(), wrote: map[kv.SeqNum]string{}, named: map[int]sender{}, known: map[int]kv.SeqNum{}}
		r.opts.time, r.opts.Durability, r.opts.LowDiskBytes = r.time.source(), kv.DurabilitySync, 1
		r.opts.maxLease, r.opts.maxSnapshotAge = 1000*time.Hour, 1000*time.Hour
		r.open()
		defer func() { require.NoError(t, r.e.Close()) }()
		for _, s := range steps {
			lines = append(lines, s.what+": "+s.do(r))
			lines = append(lines, "  "+r.scan(kv.Range{}, kv.ScanOptions{}))
		}
	})
	return lines
}

// step is something to do to a replica; it returns what the store answered.
type step struct {
	what string
	do   func(*replica) string
}

// replica is a store under one of the sets of options.
type replica struct {
	t         *testing.T
	opts      Options
	disk      *vfs.Mem
	time      *testTime
	e         *Engine
	wrote     map[kv.SeqNum]string // by which step
	named     map[int]sender       // by step
	known     map[int]kv.SeqNum
	last      kv.SeqNum
	snapshots []kv.Snapshot
}

func (r *replica) open() {
	r.opts.FS, r.snapshots = r.disk, nil
	var err error
	r.e, err = Open("data", r.opts)
	require.NoError(r.t, err)
}

// outcome says what became of a write.
func (r *replica) outcome(name string, version kv.SeqNum, err error) string {
	var lost *kv.ConditionError
	switch {
	case errors.As(err, &lost):
		return fmt.Sprintf("condition: %q should be %s, is there: %t by %s", lost.Key, lost.Wanted[:2], lost.Found, r.wrote[lost.Version])
	case errors.Is(err, kv.ErrConflict):
		return "conflict"
	}
	require.NoError(r.t, err)
	r.wrote[version] = name
	r.last = version
	return "done"
}

func (r *replica) scan(span kv.Range, o kv.ScanOptions) string {
	s, err := r.e.Scan(context.Background(), span, o)
	require.NoError(r.t, err)
	var b strings.Builder
	for s.Next() {
		i := s.Item()
		fmt.Fprintf(&b, "%q=%q by %s until %d; ", i.Key, i.Value, r.wrote[i.Version], i.Expiry)
	}
	require.NoError(r.t, errors.Join(s.Err(), s.Close()))
	return b.String()
}

// restart goes on with what is left of the disk. Everything was synced.
func (r *replica) restart(image func() *vfs.Mem) string {
	left := image()
	require.NoError(r.t, r.e.Close())
	if left != nil {
		r.disk = left
	}
	r.open()
	return fmt.Sprint("at ", r.e.Now())
}

// write does a write with a name, to be sent again later.
func (r *replica) write(n int, send sender) string {
	r.known[n] = r.last
	version, err := send(r.e, kv.RequestID{ClientID: 1, Sequence: uint64(n) + 1})
	if err == nil {
		r.named[n] = send
	}
	return r.outcome(fmt.Sprint("step ", n), version, err)
}

// sendAgain does the same write again, which must change nothing.
func (r *replica) sendAgain(n int) string {
	send := r.named[n]
	if send == nil {
		return "no such write"
	}
	version, err := send(r.e, kv.RequestID{ClientID: 1, Sequence: uint64(n) + 1, Retried: true, KnownVersion: r.known[n]})
	if !errors.Is(err, kv.ErrUncertain) {
		require.NoError(r.t, err)
		require.Equal(r.t, fmt.Sprint("step ", n), r.wrote[version])
	}
	return "not again"
}

func opNames(ops []kv.Op) string {
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprintf(&b, "[%s %.20q %.20q]", op.Kind, op.Key, op.Value)
	}
	return b.String()
}

func guardNames(guards []kv.Guard) string {
	var b strings.Builder
	for _, g := range guards {
		fmt.Fprintf(&b, "[%.20q %s]", g.Key, &g.Condition)
	}
	return b.String()
}

func drawStep(rng *rand.Rand, n int) step {
	key := func() []byte { return []byte(modelKeys[rng.IntN(len(modelKeys))]) }
	span := func() kv.Range {
		a, b := key(), key()
		if string(a) > string(b) {
			a, b = b, a
		}
		return kv.Range{Start: a, End: append(b, 0)}
	}
	ops := func(most int) []kv.Op {
		drawn := make([]kv.Op, 1+rng.IntN(most))
		for i := range drawn {
			drawn[i] = kv.Op{Kind: kv.KindPut, Key: key(), Value: fmt.Appendf(nil, "%d.%d%s", n, i, strings.Repeat("v", rng.IntN(2)*rng.IntN(3000)))}
			switch rng.IntN(6) {
			case 0:
				drawn[i] = kv.Op{Kind: kv.KindDelete, Key: key()}
			case 1:
				gone := span()
				drawn[i] = kv.Op{Kind: kv.KindRangeDelete, Key: gone.Start, Value: gone.End}
			}
		}
		return drawn
	}
	guards := func(most int) []kv.Guard {
		drawn := make([]kv.Guard, rng.IntN(most+1))
		for i := range drawn {
			drawn[i] = kv.Guard{Key: key(), Condition: kv.Condition{Kind: kv.ConditionKind(rng.IntN(3))}}
		}
		return drawn
	}
	ctx, sync := context.Background(), kv.DurabilitySync
	switch choice := rng.IntN(24); choice {
	case 0, 1, 2, 3, 4:
		drawn, at := ops(6), guards(choice/3)
		return step{fmt.Sprintf("%d: batch %s if %s", n, opNames(drawn), guardNames(at)), func(r *replica) string { return r.write(n, sendOps(drawn, sync, at...)) }}
	case 5:
		op := kv.Op{Kind: kv.KindPut, Key: key(), Value: fmt.Append(nil, n)}
		ttl := []uint64{1, 1000, 10_000}[rng.IntN(3)]
		return step{fmt.Sprintf("%d: put %.20q for %d ms", n, op.Key, ttl), func(r *replica) string {
			op := op
			op.Expiry = r.e.Now() + ttl
			return r.write(n, sendOps([]kv.Op{op}, sync))
		}}
	case 6, 7:
		var drawn []kv.Op
		for i := range 10 {
			drawn = append(drawn, kv.Op{Kind: kv.KindPut, Key: key(), Value: fmt.Append(nil, n, ".", i)})
		}
		return step{fmt.Sprintf("%d: writes %s", n, opNames(drawn)), func(r *replica) string {
			var writes []*kv.Write
			for _, op := range drawn {
				writes = append(writes, &kv.Write{Op: op})
			}
			require.NoError(r.t, r.e.Write(ctx, writes))
			for i, w := range writes {
				r.outcome(fmt.Sprintf("step %d, %d", n, i), w.Version, w.Err)
			}
			return "done"
		}}
	case 8:
		w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: key(), Value: fmt.Append(nil, n)}, If: &kv.Condition{Kind: kv.ConditionKind(1 + rng.IntN(2))}}
		return step{fmt.Sprintf("%d: put %.20q if %s", n, w.Op.Key, w.If), func(r *replica) string {
			w := w
			w.Previous = &kv.Lookup{}
			require.NoError(r.t, r.e.Write(ctx, []*kv.Write{&w}))
			return fmt.Sprintf("%s after %t %q", r.outcome(fmt.Sprint("step ", n), w.Version, w.Err), w.Previous.Found, w.Previous.Value)
		}}
	case 9, 10:
		at, then, otherwise := guards(3), ops(3), ops(3)
		return step{fmt.Sprintf("%d: if %s then %s else %s", n, guardNames(at), opNames(then), opNames(otherwise)), func(r *replica) string {
			succeeded := false
			return r.write(n, func(e *Engine, id kv.RequestID) (version kv.SeqNum, err error) {
				succeeded, version, err = e.Execute(ctx, at, batchOf(then), batchOf(otherwise), kv.WriteOptions{RequestID: id})
				return version, err
			}) + fmt.Sprint(", ", succeeded)
		}}
	case 11, 12, 13:
		i, read, scanned, drawn := rng.IntN(8), key(), span(), ops(4)
		return step{fmt.Sprintf("%d: commit at snapshot %d, read %.20q and %.20q to %.20q, %s", n, i, read, scanned.Start, scanned.End, opNames(drawn)), func(r *replica) string {
			if len(r.snapshots) == 0 {
				return "no snapshot"
			}
			tx := kv.Transaction{ReadVersion: r.snapshots[i%len(r.snapshots)].Version, Keys: [][]byte{read}, Ranges: []kv.Range{scanned}}
			return r.write(n, func(e *Engine, id kv.RequestID) (kv.SeqNum, error) {
				tx := tx
				tx.Batch = batchOf(drawn)
				return e.Commit(ctx, &tx, kv.WriteOptions{RequestID: id})
			})
		}}
	case 14, 15:
		return step{fmt.Sprintf("%d: snapshot", n), func(r *replica) string {
			s, err := r.e.BeginSnapshot(ctx, 1000*time.Hour)
			require.NoError(r.t, err)
			r.snapshots = append(r.snapshots, s)
			return "begun"
		}}
	case 16, 17:
		i, r0 := rng.IntN(8), span()
		o := kv.ScanOptions{Reverse: rng.IntN(2) == 0, KeysOnly: rng.IntN(2) == 0, Limit: uint64(rng.IntN(6))}
		return step{fmt.Sprintf("%d: scan %.20q to %.20q, %+v, at snapshot %d", n, r0.Start, r0.End, o, i), func(r *replica) string {
			o := o
			if len(r.snapshots) > 0 {
				o.At = r.snapshots[i%len(r.snapshots)].Version
			}
			return r.scan(r0, o)
		}}
	case 18:
		again := rng.IntN(n + 1)
		return step{fmt.Sprintf("%d: step %d again", n, again), func(r *replica) string { return r.sendAgain(again) }}
	case 19:
		return step{fmt.Sprintf("%d: flush", n), func(r *replica) string { require.NoError(r.t, r.e.Flush(ctx)); return "done" }}
	case 20:
		return step{fmt.Sprintf("%d: compact", n), func(r *replica) string { require.NoError(r.t, r.e.CompactAll(ctx)); return "done" }}
	case 21:
		passes, jumps := time.Duration(1+rng.IntN(4000))*time.Millisecond, []time.Duration{0, 0, time.Minute, -time.Minute, 10 * year}[rng.IntN(5)]
		return step{fmt.Sprintf("%d: %v pass, the clock jumps by %v", n, passes, jumps), func(r *replica) string {
			r.time.jump(jumps)
			r.time.pass(passes)
			require.NoError(r.t, r.e.clock.keep())
			if r.e.clock.bound.Load() == nil {
				return "nothing expires"
			}
			return fmt.Sprint("at ", r.e.Now())
		}}
	default:
		kinds := []string{"clean", "killed", "power cut"}
		kind := rng.IntN(len(kinds))
		return step{fmt.Sprintf("%d: restart, %s", n, kinds[kind]), func(r *replica) string {
			return r.restart(func() *vfs.Mem {
				return []func() *vfs.Mem{
					func() *vfs.Mem { return nil },
					r.disk.KillImage,
					func() *vfs.Mem { return r.disk.CrashImage(vfs.DropAll, nil) },
				}[kind]()
			})
		}}
	}
}
