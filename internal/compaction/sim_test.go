package compaction

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/testsize"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The partitions of the simulation are small: an entry has 100 bytes, a flush
// brings 400 entries (for 64 MiB) and a table holds 200 (for 32 MiB).
const (
	simEntryBytes   = 100
	simTableEntries = 200
	simFlushEntries = 400
)

var simPolicy = Policy{DrainBytes: 4 * simTableEntries * simEntryBytes}

// simEntry is the newest version of a key in a table.
type simEntry struct {
	key    uint32
	delete bool
	file   kv.FileNum // the file of the value; 0: inline
}

// simulation is a partition without files: flushes and merges work on sets
// of keys, and Pick sees the Version.
type simulation struct {
	t       testing.TB
	rng     *rand.Rand
	version *manifest.Version
	tables  map[kv.FileNum][]simEntry
	next    kv.FileNum
	seq     kv.SeqNum
	newest  map[uint32]bool // whether the key exists

	valueBytes   uint64 // of each value, in value files; 0: inline
	valuesMoved  uint64 // values rewritten
	largestMoved uint64 // bytes of them in one step

	flushed, written uint64 // entries: by flushes; by flushes and merges
	largestStep      uint64 // bytes read by one CompactBase
	mostDeltas       int
	mostSpace        float64 // bytes of all tables / bytes of their live entries
	reasons          map[string]int
}

func newSimulation(t testing.TB, seed uint64) *simulation {
	return &simulation{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)),
		version: &manifest.Version{Num: 1, NextFile: 1 << 40},
		tables:  map[kv.FileNum][]simEntry{}, next: 2,
		newest: map[uint32]bool{}, reasons: map[string]int{},
	}
}

// cut makes tables of sorted entries.
func (s *simulation) cut(entries []simEntry, first, last kv.SeqNum) manifest.Run {
	var run manifest.Run
	for part := range slices.Chunk(entries, simTableEntries) {
		meta := kv.TableMeta{
			Num: s.next, Size: uint64(len(part)) * simEntryBytes, Entries: uint64(len(part)),
			Smallest: binary.BigEndian.AppendUint32(nil, part[0].key),
			Largest:  binary.BigEndian.AppendUint32(nil, part[len(part)-1].key),
			MinSeq:   first, MaxSeq: last,
		}
		for _, e := range part {
			if e.delete {
				meta.Deletes++
			}
		}
		meta.Values = s.needs(part)
		s.tables[s.next] = part
		s.next++
		run = append(run, meta)
	}
	s.written += uint64(len(entries))
	return run
}

// needs returns what entries need of each value file.
func (s *simulation) needs(entries []simEntry) (refs []kv.ValueRef) {
	count := map[kv.FileNum]uint64{}
	for _, e := range entries {
		if e.file != 0 {
			count[e.file]++
		}
	}
	for _, file := range slices.Sorted(maps.Keys(count)) {
		refs = append(refs, kv.ValueRef{File: file, Values: count[file], Bytes: count[file] * s.valueBytes})
	}
	return refs
}

// separate moves inline values, and those of some files, into new
// value files.
func (s *simulation) separate(entries []simEntry, rewrite []kv.FileNum) (files []kv.ValueFileMeta) {
	moved := uint64(0)
	for i := range entries {
		e := &entries[i]
		if e.delete || s.valueBytes == 0 || e.file != 0 && !slices.Contains(rewrite, e.file) {
			continue
		}
		if e.file != 0 {
			moved++
		}
		n := len(files) - 1
		if n < 0 || files[n].Values == simFlushEntries {
			files = append(files, kv.ValueFileMeta{Num: s.next})
			s.next++
			n++
		}
		m := &files[n]
		m.Values++
		m.Bytes += s.valueBytes
		m.Size = m.Bytes + 8*m.Values + 56
		e.file = m.Num
	}
	s.valuesMoved += moved
	s.largestMoved = max(s.largestMoved, moved*s.valueBytes)
	return files
}

// flush adds a delta of the given writes; later ones win.
func (s *simulation) flush(writes []simEntry) {
	last := map[uint32]simEntry{}
	for _, e := range writes {
		last[e.key] = e
		s.newest[e.key] = !e.delete
	}
	s.flushEntries(slices.SortedFunc(maps.Values(last), func(a, b simEntry) int { return cmp.Compare(a.key, b.key) }))
}

func (s *simulation) flushEntries(entries []simEntry) {
	first := s.seq + 1
	s.seq += kv.SeqNum(len(entries))
	s.flushed += uint64(len(entries))
	values := s.separate(entries, nil)
	s.apply(manifest.Edit{Kind: manifest.Flush, Added: s.cut(entries, first, s.seq), Values: values, FlushedSeq: s.seq})
	s.mostDeltas = max(s.mostDeltas, len(s.version.Deltas))
}

// do executes a choice.
func (s *simulation) do(c Choice) {
	s.reasons[c.Reason]++
	if c.Kind == manifest.CompactBase {
		s.largestStep = max(s.largestStep, c.Bytes())
	}
	var merged []simEntry
	first, last := kv.MaxSeqNum, kv.SeqNum(0)
	for _, run := range c.Inputs() { // newest first
		var entries []simEntry
		for i := range run {
			entries = append(entries, s.tables[run[i].Num]...)
		}
		lo, hi := run.SeqBounds()
		first, last = min(first, lo), max(last, hi)
		merged = mergeSim(merged, entries)
	}
	if c.Kind == manifest.CompactBase {
		merged = slices.DeleteFunc(merged, func(e simEntry) bool { return e.delete })
	}
	values := s.separate(merged, c.Rewrite)
	s.apply(c.Edit(&Result{Tables: s.cut(merged, first, last), Values: values}))
	for _, num := range c.Tables() {
		delete(s.tables, num)
	}
}

func mergeSim(newer, older []simEntry) []simEntry {
	merged := make([]simEntry, 0, len(newer)+len(older))
	for len(newer) > 0 && len(older) > 0 {
		switch {
		case newer[0].key < older[0].key:
			merged, newer = append(merged, newer[0]), newer[1:]
		case newer[0].key > older[0].key:
			merged, older = append(merged, older[0]), older[1:]
		default:
			merged, newer, older = append(merged, newer[0]), newer[1:], older[1:]
		}
	}
	return append(append(merged, newer...), older...)
}

func (s *simulation) apply(e manifest.Edit) {
	next, err := s.version.Apply(e)
	require.NoError(s.t, err)
	s.version = next
}

// settle executes all merges that Pick chooses, and returns their number.
func (s *simulation) settle(p Policy) int {
	for n := 0; ; n++ {
		require.Less(s.t, n, 10_000, "Pick never comes to rest")
		c, ok := Pick(s.version, p, Known{OldestSnapshot: kv.MaxSeqNum})
		if !ok {
			require.Zero(s.t, Debt(s.version, p), "at rest without debt")
			return n
		}
		s.do(c)
	}
}

// all executes all merges that All chooses.
func (s *simulation) all(p Policy) {
	for n := 0; ; n++ {
		require.Less(s.t, n, 10_000, "All never comes to rest")
		c, ok := All(s.version, p, Known{})
		if !ok {
			return
		}
		s.do(c)
	}
}

// requireContents fails unless the tables hold exactly the existing keys.
func (s *simulation) requireContents() {
	got := map[uint32]bool{}
	for _, run := range append(slices.Clone(s.version.Deltas), s.version.Base) {
		for i := range run {
			for _, e := range s.tables[run[i].Num] {
				if _, newer := got[e.key]; !newer {
					got[e.key] = !e.delete
				}
			}
		}
	}
	for key, there := range s.newest {
		require.Equal(s.t, there, got[key], "key %d", key)
	}
}

// writes returns random writes to keys below keySpace.
func (s *simulation) writes(n int, keySpace uint32, deletes float64) []simEntry {
	writes := make([]simEntry, n)
	for i := range writes {
		writes[i] = simEntry{key: s.rng.Uint32N(keySpace), delete: s.rng.Float64() < deletes}
	}
	return writes
}

func (s *simulation) amplification() float64 { return float64(s.written) / float64(s.flushed) }

// W22: the oldest designs rewrite the whole base in every merge, so the bytes
// written per byte put grow with the store.
func TestBytesWrittenPerBytePut(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, flushes := range []uint32{8, 32, 128} {
		keySpace := flushes * simFlushEntries
		run := func(name string, step func(*simulation)) float64 {
			s := newSimulation(t, 1)
			for from := uint32(0); from < keySpace; from += simFlushEntries { // fill
				var entries []simEntry
				for i := range uint32(simFlushEntries) {
					entries = append(entries, simEntry{key: from + i, delete: false})
					s.newest[from+i] = true
				}
				s.flushEntries(entries)
			}
			s.all(simPolicy)
			for i := range 4 * flushes {
				if i == flushes { // from here on the deltas are in a steady state
					s.flushed, s.written, s.mostDeltas, s.largestStep, s.mostSpace = 0, 0, 0, 0, 0
					clear(s.reasons)
				}
				s.flush(s.writes(simFlushEntries, keySpace, 0))
				step(s)
				s.mostSpace = max(s.mostSpace, float64(s.version.Bytes())/float64(keySpace*simEntryBytes))
			}
			s.requireContents()
			t.Logf("base of %3d flushes, %-12s %5.1f bytes written per byte put, at most %2d deltas, %4d tables read by a step, %.2f times the space; %v",
				flushes, name+":", s.amplification(), s.mostDeltas, s.largestStep/simEntryBytes/simTableEntries, s.mostSpace, s.reasons)
			if name == "kvd" {
				require.LessOrEqual(t, s.mostDeltas, 16)
				require.LessOrEqual(t, s.mostSpace, 1.55)
				require.LessOrEqual(t, s.largestStep, 3*simPolicy.DrainBytes)
			}
			return s.amplification()
		}
		ours := run("kvd", func(s *simulation) { s.settle(simPolicy) })
		whole := run("whole base", func(s *simulation) {
			if len(s.version.Deltas) == 4 {
				s.do(Choice{Kind: manifest.CompactBase, Deltas: s.version.Deltas, Base: s.version.Base})
			}
		})
		if flushes >= 128 {
			require.Less(t, ours, 8.5, "what the package comment derives")
			require.Less(t, 2*ours, whole)
		}
	}
}

// Flushes of any size, overwrites and deletes, a key space that grows and
// shrinks: the deltas stay few, and at the end only live entries are left.
func TestRunsStayFewWhateverIsFlushed(t *testing.T) {
	testsize.OneGoroutine(t)
	const steps = 1000
	for seed := range uint64(3) {
		s := newSimulation(t, seed)
		merges := 0
		for i := range steps {
			n := 1 + s.rng.IntN(simFlushEntries)
			if s.rng.IntN(3) == 0 {
				n = 1 + s.rng.IntN(8) // a flush forced by the size of the log
			}
			deletes := 0.1
			if i/100%3 == 2 {
				deletes = 0.9
			}
			s.flush(s.writes(n, 10_000, deletes))
			merges += s.settle(simPolicy)
			require.LessOrEqual(t, len(s.version.Deltas), 20, "step %d", i)
			require.LessOrEqual(t, s.version.DeltaBytes(), s.version.Base.Bytes()/2+1, "step %d", i)
		}
		s.requireContents()
		t.Logf("seed %d: %d merges, %.1f bytes written per byte put, at most %d deltas; %v", seed, merges, s.amplification(), s.mostDeltas, s.reasons)
		require.Less(t, s.amplification(), 12.0)

		s.all(simPolicy)
		require.Empty(t, s.version.Deltas)
		live := uint64(0)
		for _, there := range s.newest {
			if there {
				live++
			}
		}
		require.Equal(t, live, s.version.Base.Entries(), "nothing dead is left")
		require.Zero(t, s.version.Base.Deletes())
		s.requireContents()
	}
}

// Space is reclaimed without an explicit compaction: after everything was deleted, less
// than a tenth remains.
func TestDeletingEverythingGivesTheSpaceBack(t *testing.T) {
	testsize.OneGoroutine(t)
	s := newSimulation(t, 4)
	const keys = 20_000
	for range 150 {
		s.flush(s.writes(simFlushEntries, keys, 0))
		s.settle(simPolicy)
	}
	full := s.version.Bytes()
	order := s.rng.Perm(keys)
	for part := range slices.Chunk(order, simFlushEntries) {
		var deletes []simEntry
		for _, key := range part {
			deletes = append(deletes, simEntry{key: uint32(key), delete: true})
		}
		s.flush(deletes)
		s.settle(simPolicy)
	}
	s.requireContents()
	require.Less(t, s.version.Bytes(), full/10, "%s", s.version)
	require.NotZero(t, s.reasons[ReasonTombstones])
}

// A choice that takes a while, among flushes, still fits when it ends (C1).
func TestAChoiceFitsAfterFlushes(t *testing.T) {
	testsize.OneGoroutine(t)
	for seed := range uint64(8) {
		s := newSimulation(t, seed)
		var running *Choice
		for range 300 {
			switch {
			case s.rng.IntN(3) == 0:
				s.flush(s.writes(1+s.rng.IntN(simFlushEntries), 5_000, 0.3))
			case running != nil:
				s.do(*running)
				running = nil
			default:
				c, ok := Pick(s.version, simPolicy, Known{OldestSnapshot: kv.MaxSeqNum})
				if s.rng.IntN(50) == 0 {
					c, ok = All(s.version, simPolicy, Known{})
				}
				if ok {
					running = &c
				}
			}
		}
		s.requireContents()
		require.NotEmpty(t, s.reasons)
	}
}
