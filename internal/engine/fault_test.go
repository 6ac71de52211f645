package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// faultLife is a short life of a store on a disk that fails, and what its client
// knows of each key.
type faultLife struct {
	opts Options
	e    *Engine
	// may holds the values that a key may have: the last one acknowledged at sync
	// and those whose outcome is unknown since. Absent is "-".
	may map[string][]string
	n   int

	seen    kv.SeqNum     // the newest version that was acknowledged
	pending *pendingWrite // of unknown outcome, to be sent again; nil if there is none
}

// pendingWrite is a named write of faultTrio of which the client does not know
// whether it happened.
type pendingWrite struct {
	id    kv.RequestID
	value string
}

const absent = "-"

// faultPair are two keys in different partitions that are only written together,
// and so are the keys of faultTrio, by transactions.
var (
	faultPair = []string{"pair-a", "pair-d"}
	faultTrio = []string{"trio-a", "trio-b", "trio-c", "trio-d"}
)

// live does the life. It returns the first answer that is wrong, or error that
// the store must not give; a store that stops is no such thing.
func (l *faultLife) live() (err error) {
	l.may = map[string][]string{}
	if l.e, err = Open("data", l.opts); err != nil {
		return nil
	}
	defer func() {
		if l.e != nil {
			_ = l.e.Close() // may say why the store failed
		}
	}()
	for _, step := range []func() error{
		func() error { return l.puts(6) },
		l.pair,
		func() error { return l.maintain((*Engine).Flush) },
		func() error { return l.puts(4) },
		l.deletes,
		l.transaction,
		l.pair,
		func() error { return l.maintain((*Engine).CompactAll) },
		func() error { return l.puts(8) },
		l.transaction,
		func() error { return l.maintain((*Engine).Flush) },
		l.deleteRange,
		l.reopen,
		l.transaction,
		l.pair,
		func() error { return l.maintain((*Engine).CompactAll) },
		l.transaction,
		func() error { return l.puts(2) },
	} {
		if err := step(); err != nil || l.e == nil {
			return err
		}
		if err := l.reads(l.e, true); err != nil {
			return err
		}
	}
	return nil
}

func (l *faultLife) reopen() error {
	_ = l.e.Close() // may fail, and the store be opened again all the same
	var err error
	if l.e, err = Open("data", l.opts); err != nil {
		l.e = nil
		return nil
	}
	return l.sendAgain(l.e, true)
}

func (l *faultLife) puts(n int) error {
	for i := range n {
		l.n++
		value := fmt.Sprint(l.n, ":", strings.Repeat("v", 150))
		version, err := l.e.Put(faultContext, []byte(key(i)), []byte(value), synced)
		if err := l.note(version, err, value, key(i)); err != nil {
			return err
		}
	}
	return nil
}

func (l *faultLife) deletes() error {
	for i := range 3 {
		version, err := l.e.Delete(faultContext, []byte(key(i)), synced)
		if err := l.note(version, err, absent, key(i)); err != nil {
			return err
		}
	}
	return nil
}

// deleteRange removes the keys of a range in all partitions.
func (l *faultLife) deleteRange() error {
	version, err := l.e.DeleteRange(faultContext, kv.Range{Start: []byte(key(2)), End: []byte(key(5))}, synced)
	return l.note(version, err, absent, key(2), key(3), key(4))
}

// transaction reads faultTrio from a snapshot and writes it if it is unchanged. It has no
// other writer, so there must be no conflict, unless the outcome of the last transaction is
// unknown.
func (l *faultLife) transaction() error {
	s, err := l.e.BeginSnapshot(faultContext, time.Minute)
	if err != nil {
		return nil // the store has stopped
	}
	defer func(e *Engine) { e.ReleaseSnapshot(s.ID) }(l.e)
	l.n++
	t := kv.Transaction{ReadVersion: s.Version, Batch: puts(fmt.Sprint(l.n), faultTrio...)}
	for _, k := range faultTrio {
		read := kv.Lookup{Key: []byte(k)}
		if _, err := l.e.LookupAt(faultContext, []*kv.Lookup{&read}, s.Version); err != nil || read.Err != nil {
			return nil // nor does it end here
		}
		is := kv.Condition{Kind: kv.IfAbsent}
		if read.Found {
			is = kv.Condition{Kind: kv.IfVersion, Version: read.Version}
		}
		t.Keys = append(t.Keys, read.Key)
		t.Batch.Require(kv.Guard{Key: read.Key, Condition: is})
	}
	t.Ranges = []kv.Range{kv.PrefixRange([]byte("trio"))}
	id := kv.RequestID{ClientID: 1, Sequence: uint64(l.n), KnownVersion: l.seen}
	version, err := l.e.Commit(faultContext, &t, kv.WriteOptions{Durability: kv.DurabilitySync, RequestID: id})
	switch {
	case err == nil:
		l.pending = nil
	case errors.Is(err, kv.ErrUncertain):
		l.pending = &pendingWrite{id, fmt.Sprint(l.n)}
	case errors.Is(err, kv.ErrConflict) && l.pending != nil:
		return nil // with the one of unknown outcome, as long as the store has not noticed that it failed
	case errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrConditionFailed):
		return fmt.Errorf("a conflict without another writer: %w", err)
	case !errors.Is(err, kv.ErrFailed):
		return nil // could not read what it needs to judge
	}
	return l.note(version, err, fmt.Sprint(l.n), faultTrio...)
}

// sendAgain sends a write of unknown outcome once more. Its outcome is known then.
func (l *faultLife) sendAgain(e *Engine, errorsAllowed bool) error {
	if l.pending == nil {
		return nil
	}
	id := l.pending.id
	id.Retried = true
	version, err := e.Apply(faultContext, puts(l.pending.value, faultTrio...), kv.WriteOptions{Durability: kv.DurabilitySync, RequestID: id})
	switch {
	case err == nil:
		err = l.note(version, nil, l.pending.value, faultTrio...)
		l.pending = nil
		return err
	case errorsAllowed, errors.Is(err, kv.ErrUncertain) && id.KnownVersion+1 < e.firstSeq:
		return nil // as uncertain as before
	}
	return fmt.Errorf("send a transaction again: %w", err)
}

func (l *faultLife) pair() error {
	l.n++
	value := fmt.Sprint(l.n)
	var b kv.WriteBatch
	for _, k := range faultPair {
		b.Put([]byte(k), []byte(value))
	}
	version, err := l.e.Apply(faultContext, &b, synced)
	return l.note(version, err, value, faultPair...)
}

// note takes in the outcome of a write. Errors must be ones that callers know.
func (l *faultLife) note(version kv.SeqNum, err error, value string, keys ...string) error {
	if err == nil {
		l.seen = max(l.seen, version)
	}
	for _, k := range keys {
		if l.may[k] == nil {
			l.may[k] = []string{absent}
		}
		switch {
		case err == nil:
			l.may[k] = []string{value}
		case errors.Is(err, kv.ErrUncertain):
			l.may[k] = append(slices.Clone(l.may[k]), value)
		case !errors.Is(err, kv.ErrFailed) && !errors.Is(err, kv.ErrReadOnly) && !errors.Is(err, kv.ErrOverloaded):
			return fmt.Errorf("a write must not fail like this: %w", err)
		}
	}
	return nil
}

// maintain flushes or compacts; that may fail.
func (l *faultLife) maintain(do func(*Engine, context.Context) error) error {
	if err := do(l.e, faultContext); errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// reads compares every key. Errors are no wrong answers, where they are allowed.
func (l *faultLife) reads(e *Engine, errorsAllowed bool) error {
	seen := map[string]string{}
	for k, may := range l.may {
		got := absent
		switch item, err := e.Get(faultContext, []byte(k)); {
		case err == nil:
			got = string(item.Value)
		case errors.Is(err, kv.ErrNotFound):
		case errorsAllowed && !errors.Is(err, context.DeadlineExceeded):
			continue
		default:
			return fmt.Errorf("get %q: %w", k, err)
		}
		if !slices.Contains(may, got) {
			return fmt.Errorf("%q is %.20q, may be %.20q", k, got, may)
		}
		seen[k] = got
	}
	if len(seen) < len(l.may) {
		return nil // some could not be read
	}
	for _, together := range [][]string{faultPair, faultTrio} {
		for _, k := range together[1:] {
			if a, b := seen[together[0]], seen[k]; a != b {
				return fmt.Errorf("half a batch: %q is %q and %q is %q", together[0], a, k, b)
			}
		}
	}
	return nil
}

var faultContext = context.Background()

// faultClasses make an Injector that strikes at the i-th operation of its kind,
// and from then on if sticky.
var faultClasses = map[string]func(i int, sticky bool) *faultfs.Rule{
	"anything fails": func(i int, sticky bool) *faultfs.Rule { return faultfs.FailAt(i, syscall.EIO, sticky) },
	"no space": func(i int, sticky bool) *faultfs.Rule {
		return faultfs.FailAt(i, syscall.ENOSPC, sticky, faultfs.OnKind(faultfs.Write, faultfs.Create, faultfs.MkdirAll))
	},
	"short write": func(i int, sticky bool) *faultfs.Rule {
		return faultfs.At(i, sticky, faultfs.Fault{Err: syscall.EIO, Short: 20}, faultfs.OnKind(faultfs.Write))
	},
	"sync fails and drops": func(i int, sticky bool) *faultfs.Rule {
		return faultfs.At(i, sticky, faultfs.Fault{Err: syscall.EIO, DropDirty: true}, faultfs.OnKind(faultfs.Sync))
	},
	"names": func(i int, sticky bool) *faultfs.Rule {
		return faultfs.FailAt(i, syscall.EIO, sticky, faultfs.OnKind(faultfs.Rename, faultfs.SyncDir, faultfs.Remove))
	},
	"reads": func(i int, sticky bool) *faultfs.Rule {
		return faultfs.FailAt(i, syscall.EIO, sticky, faultfs.OnKind(faultfs.Read, faultfs.Open, faultfs.Size, faultfs.Stat, faultfs.List))
	},
	"too many files": func(i int, sticky bool) *faultfs.Rule {
		return faultfs.FailAt(i, syscall.EMFILE, sticky, faultfs.OnKind(faultfs.Open, faultfs.OpenReadWrite, faultfs.Create))
	},
}

// TestFaultSweep fails operation 0, 1, 2, ... of a short life, once, or from then on. The
// store may continue, become read-only or stop. It must not give a wrong answer, nor lose
// what it acknowledged, neither for the next process nor after a power cut. By default the
// test samples the operations; with KVD_FAULTS=full it fails each.
func TestFaultSweep(t *testing.T) {
	stride := 41
	switch {
	case os.Getenv("KVD_FAULTS") == "full":
		stride = 1
	case testsize.Reduced():
		stride = 173
	}
	for name, class := range faultClasses {
		for _, sticky := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, sticky %v", name, sticky), func(t *testing.T) {
				t.Parallel()
				runs := 0
				// Each begins at another operation: together they fail more different ones.
				for i := len(name) * stride / 23; ; i += stride {
					rule := class(i, sticky)
					faultRun(t, rule, i)
					runs++
					if !rule.Fired() {
						break
					}
				}
				t.Logf("%d runs", runs)
			})
		}
	}
}

// faultRun lives on a disk with faults, in a bubble: a store whose disk fails pauses
// before it tries again, and a fake clock does not wait for that.
func faultRun(t *testing.T, inj faultfs.Injector, i int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { faultLives(t, inj, i) })
}

func faultLives(t *testing.T, inj faultfs.Injector, i int) {
	mem := vfs.NewMem()
	disk := faultfs.Wrap(mem, inj)
	l := &faultLife{opts: crashOptions(disk, 2)}
	require.NoError(t, l.live(), "fault at %d", i)
	for name, image := range map[string]*vfs.Mem{
		"the next process": mem.KillImage(), "a power cut": mem.CrashImage(vfs.DropAll, nil), "everything kept": mem.CrashImage(vfs.KeepAll, nil),
	} {
		o := l.opts
		o.FS = image
		e, err := Open("data", o)
		require.NoError(t, err, "fault at %d, then %s", i, name)
		require.NoError(t, l.reads(e, false), "fault at %d, then %s", i, name)
		l := *l // what happens from here on is another world
		l.may = maps.Clone(l.may)
		require.NoError(t, l.sendAgain(e, false), "fault at %d, then %s", i, name)
		require.NoError(t, l.reads(e, false), "fault at %d, then %s and all sent again", i, name)
		put(t, e, "after", "v", synced)
		require.NoError(t, e.Flush(t.Context()))
		require.NoError(t, l.reads(e, false), "fault at %d, then %s and a flush", i, name)
		require.NoError(t, e.Close())
	}
}

// If the log's directory can neither be synced nor have files removed, segments remain in
// it that were never written to.
func TestLogSegmentsThatCouldNotBeRemoved(t *testing.T) {
	for i := 30; i < 70; i += 3 {
		faultRun(t, faultClasses["names"](i, true), i)
	}
}

// A bit that flips in a read of a table or manifest causes an error, never a wrong answer.
// (In the log's last group it is a torn tail: see the damage sweep.)
func TestFlippedReads(t *testing.T) {
	t.Parallel()
	stride := 11
	if testsize.Reduced() {
		stride = 83
	}
	notLog := func(op faultfs.Op) bool { return op.Kind == faultfs.Read && !faultfs.OnName("*.wal")(op) }
	for i := 0; ; i += stride {
		var count atomic.Int64
		struck := false
		inj := faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if !notLog(op) || count.Add(1)-1 != int64(i) {
				return faultfs.Fault{}
			}
			struck = true
			return faultfs.Fault{FlipMask: 1 << (i % 8), FlipOffset: op.Off + int64(i*31%max(op.Len, 1))}
		})
		faultRun(t, inj, i)
		if !struck {
			break
		}
	}
}
