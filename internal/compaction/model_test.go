package compaction

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/scanbatch"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/testsize"
)

// tree is a partition without a log: real tables, a Version that edits are
// applied to, and the history of all writes to check against.
type tree struct {
	*shelf
	version   *manifest.Version
	readers   map[kv.FileNum]*sstable.Reader
	history   []kv.Entry
	keys      map[string]bool
	seq       kv.SeqNum
	snapshots []kv.SeqNum
	now       uint64
	pieces    uint64 // of range tombstones, made so far
	moved     uint64 // bytes of values rewritten so far
	drops     int    // choices dropped unread so far
}

func newTree(t require.TestingT) *tree {
	return &tree{
		shelf:   newShelf(t),
		version: &manifest.Version{Num: 1 << 39, NextFile: 1 << 40},
		readers: map[kv.FileNum]*sstable.Reader{}, keys: map[string]bool{}, now: 1,
	}
}

// horizon returns what a merge that begins now must keep readable.
func (tr *tree) horizon() Snapshots {
	return NewSnapshots(append(slices.Clone(tr.snapshots), tr.seq))
}

func (tr *tree) run(c Choice) *Result {
	if c.Drop {
		tr.drops++
		return &Result{}
	}
	got, err := Run(context.Background(), tr.job(c, Rule{Snapshots: tr.horizon(), Now: tr.now}))
	require.NoError(tr.t, err)
	tr.pieces += got.Pieces
	tr.moved += got.Moved
	return &got
}

func (tr *tree) apply(e manifest.Edit) {
	next, err := tr.version.Apply(e)
	require.NoError(tr.t, err)
	for i := range tr.version.Values {
		if old := tr.version.Values[i]; !slices.Contains(next.Values, old) {
			require.NoError(tr.t, tr.Remove(manifest.FileValues, old.Num))
		}
	}
	tr.version = next
	for _, num := range e.Removed {
		require.NoError(tr.t, tr.readers[num].Close())
		delete(tr.readers, num)
		require.NoError(tr.t, tr.Remove(manifest.FileTable, num))
	}
	for i := range e.Added {
		num := e.Added[i].Num
		f, err := tr.fs.Open(tr.name(num))
		require.NoError(tr.t, err)
		tr.readers[num], err = sstable.Open(f, kv.FileID{Partition: 3, Num: num}, nil)
		require.NoError(tr.t, err)
	}
}

// flush writes entries, whose numbers are those of batches from 1 on, as a delta.
func (tr *tree) flush(entries ...kv.Entry) {
	before := tr.seq
	for i := range entries {
		e := &entries[i]
		e.Seq += before
		tr.seq = max(tr.seq, e.Seq)
		tr.keys[string(e.Key)] = true
	}
	tr.history = append(tr.history, entries...)
	slices.SortFunc(entries, compareEntries)
	memtable := tr.put(len(entries), entries...)
	added := tr.run(Choice{Kind: manifest.Flush, Deltas: []manifest.Run{memtable}})
	require.NoError(tr.t, tr.Remove(manifest.FileTable, memtable[0].Num))
	tr.apply(manifest.Edit{Kind: manifest.Flush, Added: added.Tables, Values: added.Values, FlushedSeq: tr.seq})
}

func (tr *tree) do(c Choice) {
	if c.Kind == manifest.CompactBase {
		tr.requireOlderRead(c)
	}
	tr.apply(c.Edit(tr.run(c)))
}

func (tr *tree) ranges(num kv.FileNum) *kv.RangeTombstones { return tr.readers[num].RangeTombstones() }

func (tr *tree) stats(num kv.FileNum) kv.TableStats { return tr.readers[num].Stats() }

func (tr *tree) pick(p Policy) (Choice, bool) {
	return Pick(tr.version, p, Known{OldestSnapshot: tr.horizon().Oldest(), Now: tr.now, Ranges: tr.ranges, Stats: tr.stats})
}

// settle executes all merges that Pick chooses.
func (tr *tree) settle(p Policy) {
	for n := 0; ; n++ {
		require.Less(tr.t, n, 1000, "Pick never comes to rest")
		c, ok := tr.pick(p)
		if !ok {
			return
		}
		tr.do(c)
	}
}

// requireOlderRead checks the condition for dropping a range tombstone: no
// table that the merge does not read has anything that the tombstone hides.
func (tr *tree) requireOlderRead(c Choice) {
	read := c.Tables()
	for table := range tr.version.Tables() {
		if slices.Contains(read, table.Num) {
			continue
		}
		for _, e := range tr.entries(manifest.Run{*table}) {
			for _, num := range read {
				for _, t := range tr.ranges(num).All() {
					hides := t.Seq > e.Seq && bytes.Compare(e.Key, t.Value) < 0 &&
						(bytes.Compare(t.Key, e.Key) <= 0 || e.Kind == kv.KindRangeDelete && bytes.Compare(t.Key, e.Value) < 0)
					require.False(tr.t, hides, "%s@%d of table %d hides %s@%d of table %d, which %v does not read", t.Key, t.Seq, num, e.Key, e.Seq, table.Num, &c)
				}
			}
		}
	}
}

// model computes what a reader sees from the history alone.
func (tr *tree) model(at kv.SeqNum) []kv.Entry {
	var seen []kv.Entry
	for key := range tr.keys {
		var newest kv.Entry
		var deleted kv.SeqNum
		for _, e := range tr.history {
			switch {
			case e.Seq > at:
			case e.Kind == kv.KindRangeDelete:
				if string(e.Key) <= key && key < string(e.Value) {
					deleted = max(deleted, e.Seq)
				}
			case string(e.Key) == key && e.Seq > newest.Seq:
				newest = e
			}
		}
		if newest.Kind == kv.KindPut && newest.Seq >= deleted && (newest.Expiry == 0 || newest.Expiry > tr.now) {
			seen = append(seen, newest)
		}
	}
	slices.SortFunc(seen, compareEntries)
	return seen
}

// scan returns what a reader of the tables sees, both ways.
func (tr *tree) scan(at kv.SeqNum) []kv.Entry {
	seen := tr.walk(at, false)
	require.Equal(tr.t, seen, backward(tr.walk(at, true)))
	return seen
}

func backward(entries []kv.Entry) []kv.Entry {
	slices.Reverse(entries)
	return entries
}

func (tr *tree) walk(at kv.SeqNum, reverse bool) (seen []kv.Entry) {
	view := scanbatch.View{At: at, Now: tr.now}
	var sources []kv.Iterator
	for table := range tr.version.Tables() {
		r := tr.readers[table.Num]
		sources = append(sources, r.NewIterator(sstable.IterOptions{}))
		view.Covers = append(view.Covers, r.RangeTombstones())
	}
	var v mergeiter.Visible
	v.Init(view, kv.Range{}, reverse, sources)
	for more := true; more; {
		var b scanbatch.Batch
		b.Reset(16, 1<<10, false)
		more = v.Fill(&b)
		for _, i := range b.Apart {
			b.Replace(i, tr.value(b.Items[i].Value))
		}
		for _, item := range b.Items {
			seen = append(seen, kv.Entry{Key: item.Key, Value: item.Value, Seq: item.Version, Kind: kv.KindPut, Expiry: item.Expiry})
		}
	}
	require.NoError(tr.t, v.Err())
	require.NoError(tr.t, v.Close())
	return seen
}

// get looks a key up as a point read does: in the one table of each run that may
// hold it, the newest run first.
func (tr *tree) get(key string, at kv.SeqNum) kv.SeqNum {
	q := sstable.Query{Key: []byte(key), Hash: keyhash.Sum([]byte(key)), At: at}
	for _, run := range append(slices.Clone(tr.version.Deltas), tr.version.Base) {
		if table := run.Find(q.Key); table != nil {
			tr.readers[table.Num].Get(&q)
		}
	}
	require.NoError(tr.t, q.Err)
	if q.Kind != kv.KindPut || q.Expiry != 0 && q.Expiry <= tr.now {
		return 0
	}
	return q.Seq
}

// requireReaders compares what every reader sees with the model.
func (tr *tree) requireReaders() {
	for _, at := range append(tr.horizon(), kv.MaxSeqNum) {
		want := tr.model(at)
		seen := tr.scan(at)
		require.Equal(tr.t, brief(want), brief(seen), "at %d of %v\n%s", at, tr.snapshots, tr.version)
		for i := range want {
			require.Equal(tr.t, want[i].Value, seen[i].Value, "key %q at %d", want[i].Key, at)
		}
		there := map[string]kv.SeqNum{}
		for _, e := range want {
			there[string(e.Key)] = e.Seq
		}
		for key := range tr.keys {
			require.Equal(tr.t, there[key], tr.get(key, at), "key %q at %d of %v\n%s", key, at, tr.snapshots, tr.version)
		}
	}
}

// requireNothingDead merges everything without a snapshot and checks that only
// what a reader sees is left.
func (tr *tree) requireNothingDead() {
	tr.snapshots = nil
	if tr.version.Bytes() > 0 {
		tr.do(Choice{Kind: manifest.CompactBase, Deltas: tr.version.Deltas, Base: tr.version.Base})
	}
	require.Empty(tr.t, tr.version.Deltas)
	require.Equal(tr.t, brief(tr.model(tr.seq)), brief(tr.entries(tr.version.Base)))
}

// requireValueFiles checks that the existing value files are those of the
// version, and that the reference counts of each table are right.
func (tr *tree) requireValueFiles() {
	names, err := tr.fs.List("/")
	require.NoError(tr.t, err)
	var there []string
	for _, name := range names {
		if kind, _ := manifest.ParseName(name); kind == manifest.FileValues {
			there = append(there, name)
		}
	}
	var want []string
	for i := range tr.version.Values {
		want = append(want, manifest.ValuesName(tr.version.Values[i].Num))
	}
	require.Equal(tr.t, want, there)
}

func (tr *tree) close() {
	for _, r := range tr.readers {
		require.NoError(tr.t, r.Close())
	}
	require.NoError(tr.t, tr.values.Close())
	tr.requireNoneOpen()
}

// genWrites draws batches of puts, some of which expire, deletes and range deletes,
// in a tiny space of keys full of prefixes and extreme bytes.
func genWrites() *rapid.Generator[[]kv.Entry] {
	genKey := rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 'a', 'b', 0xff}), 1, 3)
	return rapid.Custom(func(t *rapid.T) []kv.Entry {
		var writes []kv.Entry
		taken := map[string]bool{} // by a put or delete of the current batch
		for range rapid.IntRange(1, 20).Draw(t, "writes") {
			if len(writes) == 0 || rapid.Bool().Draw(t, "new batch") {
				clear(taken)
				writes = append(writes, kv.Entry{Seq: kv.SeqNum(1)})
				if n := len(writes); n > 1 {
					writes[n-1].Seq = writes[n-2].Seq + 1
				}
			} else {
				writes = append(writes, kv.Entry{Seq: writes[len(writes)-1].Seq})
			}
			e := &writes[len(writes)-1]
			e.Key = genKey.Draw(t, "key")
			kind := rapid.IntRange(0, 5).Draw(t, "kind")
			if taken[string(e.Key)] {
				kind = 0
			}
			switch kind {
			case 0:
				e.Kind, e.Value = kv.KindRangeDelete, genKey.Draw(t, "end")
				if bytes.Compare(e.Key, e.Value) > 0 {
					e.Key, e.Value = e.Value, e.Key
				} else if bytes.Equal(e.Key, e.Value) {
					e.Value = append(e.Value, 0)
				}
				continue
			case 1:
				e.Kind = kv.KindDelete
			case 2:
				e.Expiry = uint64(rapid.IntRange(1, 20).Draw(t, "expiry"))
				fallthrough
			default:
				e.Kind, e.Value = kv.KindPut, fmt.Appendf(nil, "value of %x%s", e.Key, strings.Repeat(".", rapid.IntRange(0, 3).Draw(t, "length")*20))
			}
			taken[string(e.Key)] = true
		}
		return writes
	})
}

// plan is what is done to a tree: a step flushes writes, or does one of the other things.
type plan struct {
	policy Policy
	steps  []func(*tree, Policy)
}

func drawPlan(t *rapid.T) plan {
	p := plan{policy: Policy{
		DeltaFanIn: 2, BaseRatio: rapid.IntRange(1, 8).Draw(t, "base ratio"), MaxDeltas: 3,
		DrainBytes: uint64(rapid.IntRange(1, 4000).Draw(t, "drain bytes")),
		MaxGarbage: rapid.SampledFrom([]int{1, 30, 50, 99}).Draw(t, "garbage"),
	}}
	for range rapid.IntRange(5, 25).Draw(t, "steps") {
		p.steps = append(p.steps, drawStep(t))
	}
	return p
}

func drawStep(t *rapid.T) func(*tree, Policy) {
	switch rapid.IntRange(0, 7).Draw(t, "step") {
	case 0, 1:
		writes := genWrites().Draw(t, "batches")
		return func(tr *tree, _ Policy) { tr.flush(writes...) }
	case 2, 3:
		return func(tr *tree, p Policy) {
			if c, ok := tr.pick(p); ok {
				tr.do(c)
			}
		}
	case 4:
		return func(tr *tree, p Policy) {
			if c, ok := All(tr.version, p, Known{}); ok {
				tr.do(c)
			}
		}
	case 5:
		release := rapid.Bool().Draw(t, "release")
		return func(tr *tree, _ Policy) {
			if release && len(tr.snapshots) > 0 {
				tr.snapshots = slices.Delete(tr.snapshots, 0, 1)
			} else {
				tr.snapshots = append(tr.snapshots, tr.seq)
			}
		}
	case 6:
		later := uint64(rapid.IntRange(0, 5).Draw(t, "later"))
		return func(tr *tree, _ Policy) { tr.now += later }
	default: // as after a restart with another rule
		threshold := rapid.SampledFrom([]int{0, 1, 30, 50}).Draw(t, "threshold")
		return func(tr *tree, _ Policy) { tr.rule.Threshold = threshold }
	}
}

// carryOut does what a plan says and returns the tree, which is closed. After each step every
// reader sees what it should, in scans and in point reads, every edit fits, and at the end
// nothing dead is left.
func carryOut(t require.TestingT, p plan) *tree {
	tr := newTree(t)
	defer tr.close()
	for _, step := range p.steps {
		step(tr, p.policy)
		tr.requireReaders()
		tr.requireValueFiles()
	}
	tr.requireNothingDead()
	tr.requireReaders()
	tr.settle(p.policy)
	tr.requireValueFiles()
	all, garbage := tr.version.ValueBytes()
	require.LessOrEqual(t, 100*garbage, uint64(p.policy.MaxGarbage)*all, "%s", tr.version)
	return tr
}

// Random writes, flushes, merges of every kind and snapshots.
func TestMergesAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { carryOut(t, drawPlan(t)) })
}

// Few plans reach everything that a merge can do, and all that one run draws may miss some of it.
// These plans are the same in every run, so that the model cannot become empty unnoticed.
func TestPlansOfTheModelReachEverything(t *testing.T) {
	const seeds = 60
	pieces, moved, drops := uint64(0), uint64(0), 0
	for seed := range seeds {
		tr := carryOut(t, rapid.Custom(drawPlan).Example(seed))
		pieces, moved, drops = pieces+tr.pieces, moved+tr.moved, drops+tr.drops
	}
	t.Logf("%d plans: %d pieces of range tombstones, %d bytes of values rewritten, %d choices dropped unread", seeds, pieces, moved, drops)
	require.NotZero(t, pieces, "no range tombstone was ever cut")
	require.NotZero(t, moved, "no value was ever rewritten")
	require.NotZero(t, drops, "nothing was ever dropped unread")
}

// smallSteps lets a drain read a few tables of many.
var smallSteps = Policy{DrainBytes: 5000}

// filled returns a tree whose base has keys 0 to 399 in many tables.
func filled(t *testing.T) *tree {
	tr := newTree(t)
	var entries []kv.Entry
	for i := range 400 {
		entries = append(entries, put(fmt.Sprintf("user%06d", i), kv.SeqNum(i+1)))
	}
	tr.flush(entries...)
	for {
		c, ok := All(tr.version, smallSteps, Known{})
		if !ok {
			break
		}
		tr.do(c)
	}
	require.Empty(t, tr.version.Deltas)
	require.Greater(t, len(tr.version.Base), 50)
	return tr
}

// The space of a large range delete is reclaimed, though it is only one tombstone;
// while a snapshot needs it, no merge is tried in vain.
func TestDeletingARangeGivesTheSpaceBack(t *testing.T) {
	tr := filled(t)
	defer tr.close()
	full := tr.version.Bytes()
	tr.snapshots = []kv.SeqNum{tr.seq}
	tr.flush(*tombstone("user000100", "user000280", 1), *tombstone("user000260", "user000300", 2))
	_, ok := tr.pick(smallSteps)
	require.False(t, ok, "a snapshot needs it all")
	tr.snapshots = nil
	c, ok := tr.pick(smallSteps)
	require.True(t, ok)
	require.Equal(t, ReasonCovered, c.Reason)
	tr.do(c)
	require.Less(t, tr.version.Base.Entries(), uint64(220), "whole tables go unread")
	tr.settle(smallSteps)
	require.Less(t, tr.version.Entries(), uint64(220), "%s", tr.version)
	require.Less(t, tr.version.Bytes(), full*6/10)
	tr.requireReaders()
}

// None of them covers a table of the base, but together they are worth a drain.
func TestManySmallRangeDeletesAreWorthADrain(t *testing.T) {
	tr := filled(t)
	defer tr.close()
	var deletes []kv.Entry
	for i := range 40 {
		deletes = append(deletes, *tombstone(fmt.Sprintf("user%06d", 10*i), fmt.Sprintf("user%06d", 10*i+3), kv.SeqNum(i+1)))
	}
	tr.flush(deletes...)
	c, ok := tr.pick(smallSteps)
	require.True(t, ok)
	require.Equal(t, manifest.CompactBase, c.Kind)
	require.Equal(t, ReasonTombstones, c.Reason)
	tr.settle(smallSteps)
	require.Less(t, tr.version.Base.Entries(), uint64(400))
	tr.requireReaders()
}

// A drain during a snapshot moves a range tombstone and what it hides into
// the base; both are dropped after the snapshot ends.
func TestCoveredBaseGoesWithItsSnapshot(t *testing.T) {
	testsize.OneGoroutine(t)
	tr := filled(t)
	defer tr.close()
	tr.snapshots = []kv.SeqNum{tr.seq}
	tr.flush(*tombstone("user000100", "user000300", 1))
	tr.do(Choice{Kind: manifest.CompactBase, Deltas: tr.version.Deltas, Base: tr.version.Base})
	require.NotZero(t, tr.version.Base.Deletes())
	require.Greater(t, tr.version.Base.Entries(), uint64(400), "all that the snapshot sees")
	tr.requireReaders()
	_, ok := tr.pick(smallSteps)
	require.False(t, ok)
	tr.snapshots = nil
	tr.settle(smallSteps)
	require.Zero(t, tr.version.Base.Deletes(), "%s", tr.version)
	require.Equal(t, uint64(200), tr.version.Entries())
	tr.requireReaders()
}
