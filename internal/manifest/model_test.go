package manifest

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// model keeps the entries that the tables of a Version would hold, and the
// newest write of each key. Keys are single letters.
type model struct {
	version *Version
	next    kv.FileNum
	seq     kv.SeqNum
	files   map[kv.FileNum][]modelEntry
	newest  map[byte]modelEntry
}

type modelEntry struct {
	key    byte
	seq    kv.SeqNum
	delete bool
}

const modelKeys = "abcdefghij"

func newModel() *model {
	return &model{
		version: &Version{Num: 1, NextFile: 1 << 20},
		next:    2,
		files:   map[kv.FileNum][]modelEntry{},
		newest:  map[byte]modelEntry{},
	}
}

// cut makes a run of sorted entries, in tables of random length.
func (m *model) cut(t *rapid.T, entries []modelEntry) Run {
	var run Run
	for len(entries) > 0 {
		n := rapid.IntRange(1, len(entries)).Draw(t, "table entries")
		meta := kv.TableMeta{Num: m.next, Size: 1, Smallest: []byte{entries[0].key}, Largest: []byte{entries[n-1].key}, MinSeq: kv.MaxSeqNum}
		for _, e := range entries[:n] {
			meta.Entries++
			if e.delete {
				meta.Deletes++
			}
			meta.MinSeq, meta.MaxSeq = min(meta.MinSeq, e.seq), max(meta.MaxSeq, e.seq)
		}
		m.files[m.next] = entries[:n:n]
		m.next++
		run = append(run, meta)
		entries = entries[n:]
	}
	return run
}

// merge returns the newest entry of each key in the tables, without tombstones
// if drop.
func (m *model) merge(tables []kv.FileNum, drop bool) []modelEntry {
	newest := map[byte]modelEntry{}
	for _, num := range tables {
		for _, e := range m.files[num] {
			if e.seq > newest[e.key].seq {
				newest[e.key] = e
			}
		}
	}
	var merged []modelEntry
	for _, key := range slices.Sorted(maps.Keys(newest)) {
		if e := newest[key]; !drop || !e.delete {
			merged = append(merged, e)
		}
	}
	return merged
}

func (m *model) Flush(t *rapid.T) {
	var entries []modelEntry
	for i := range modelKeys {
		if rapid.IntRange(0, 2).Draw(t, "write key") == 0 {
			m.seq++
			e := modelEntry{modelKeys[i], m.seq, rapid.Bool().Draw(t, "delete")}
			entries = append(entries, e)
			m.newest[e.key] = e
		}
	}
	m.apply(t, Edit{Kind: Flush, Added: m.cut(t, entries), FlushedSeq: m.seq})
}

func (m *model) CompactDeltas(t *rapid.T) {
	if len(m.version.Deltas) == 0 {
		t.Skip("no deltas")
	}
	from := rapid.IntRange(0, len(m.version.Deltas)-1).Draw(t, "from")
	to := rapid.IntRange(from+1, len(m.version.Deltas)).Draw(t, "to")
	removed := nums(slices.Concat(m.version.Deltas[from:to]...))
	m.apply(t, Edit{Kind: CompactDeltas, Removed: removed, Added: m.cut(t, m.merge(removed, false))})
}

func (m *model) CompactBase(t *rapid.T) {
	if len(m.version.Deltas) == 0 {
		t.Skip("no deltas")
	}
	oldest := m.version.Deltas[len(m.version.Deltas)-1]
	table := oldest[rapid.IntRange(0, len(oldest)-1).Draw(t, "table")]
	removed := append(nums(m.version.Base.Overlapping(table.Smallest, table.Largest)), table.Num)
	m.apply(t, Edit{Kind: CompactBase, Removed: removed, Added: m.cut(t, m.merge(removed, true))})
}

// CompactAnything merges tables that no picker would combine. If Apply accepts
// the edit, no read may change: E3 and E4 are sufficient.
func (m *model) CompactAnything(t *rapid.T) {
	var removed []kv.FileNum
	for meta := range m.version.Tables() {
		if rapid.Bool().Draw(t, "remove") {
			removed = append(removed, meta.Num)
		}
	}
	if len(removed) == 0 {
		t.Skip("nothing to remove")
	}
	kind := rapid.SampledFrom([]EditKind{CompactDeltas, CompactBase}).Draw(t, "kind")
	e := Edit{Kind: kind, Removed: removed, Added: m.cut(t, m.merge(removed, kind == CompactBase))}
	if next, err := m.version.Apply(e); err == nil {
		m.version = next
	}
}

func (m *model) apply(t *rapid.T, e Edit) {
	next, err := m.version.Apply(e)
	require.NoError(t, err)
	m.version = next
}

// Check reads every key as a reader of the Version would: the first run that has
// the key decides.
func (m *model) Check(t *rapid.T) {
	require.NoError(t, m.version.check())
	for i := range modelKeys {
		key := modelKeys[i]
		var got modelEntry
		for _, run := range m.version.runs() {
			if meta := run.Find([]byte{key}); meta != nil && got.seq == 0 {
				for _, e := range m.files[meta.Num] {
					if e.key == key {
						got = e
					}
				}
			}
		}
		want := m.newest[key]
		if want.delete && got.seq == 0 {
			continue // the tombstone and everything that it hides are gone
		}
		require.Equal(t, want, got, "key %c in\n%s", key, m.version)
	}
}

func TestAnyEditsThatApplyAcceptsKeepEveryRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { t.Repeat(rapid.StateMachineActions(newModel())) })
}
