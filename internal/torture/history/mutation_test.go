package history

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	madeKeys = 20
	madeSpan = 5
)

// maker generates correct histories: it simulates a store that performs one operation
// at a time, and clients whose calls and returns lie around that time.
type maker struct {
	rng     *rand.Rand
	log     Log
	cells   [madeKeys]Read // with the versions of deletes too
	version kv.SeqNum
	time    int64
	values  Value
}

func makeHistory(seed uint64, steps int) *maker {
	m := &maker{rng: rand.New(rand.NewPCG(seed, 1)), version: 1}
	for range steps {
		m.time += 10
		switch m.rng.IntN(5) {
		case 0:
			m.commit(Op{})
		case 1:
			m.add(Op{Kind: Get, ReadVersion: m.version, Reads: m.reads(1)})
		case 2:
			m.add(Op{Kind: Snapshot, ReadVersion: m.version, Reads: m.reads(3), Scans: m.scan()})
		default:
			m.transaction()
		}
	}
	return m
}

// add records an Op with call and return times around now.
func (m *maker) add(o Op) {
	o.Outcome, o.Call, o.Return = Done, m.time-m.rng.Int64N(60), m.time+1+m.rng.Int64N(60)
	m.log.Add(o)
}

func (m *maker) seen(k Key) Read {
	r := m.cells[k]
	if r.Key = k; r.Value == Absent {
		r.Version = 0
	}
	return r
}

func (m *maker) reads(n int) []Read {
	var reads []Read
	for range n {
		reads = append(reads, m.seen(Key(m.rng.IntN(madeKeys))))
	}
	return reads
}

func (m *maker) scan() []Scan {
	s := Scan{From: Key(m.rng.IntN(madeKeys - madeSpan))}
	s.To = s.From + madeSpan
	for k := s.From; k < s.To; k++ {
		if r := m.seen(k); r.Value != Absent {
			s.Seen = append(s.Seen, r)
		}
	}
	return []Scan{s}
}

// commit performs a write.
func (m *maker) commit(o Op) {
	m.version += kv.SeqNum(1 + m.rng.IntN(3))
	o.Kind, o.Version = Commit, m.version
	for range 1 + m.rng.IntN(3) {
		w := Write{Key: Key(m.rng.IntN(madeKeys - 2))}
		switch m.rng.IntN(6) {
		case 0:
		case 1:
			w.End = w.Key + 2
		default:
			m.values++
			w.Value = m.values
		}
		o.Writes = append(o.Writes, w)
		for k := w.Key; k < w.end(); k++ {
			m.cells[k] = Read{Key: k, Value: w.Value, Version: m.version}
		}
	}
	m.add(o)
}

// transaction reads, lets other clients write other keys, and writes.
func (m *maker) transaction() {
	read := Op{Kind: Snapshot, ReadVersion: m.version, Reads: m.reads(2), Scans: m.scan()}
	m.add(read)
	before := m.cells
	for range m.rng.IntN(2) {
		m.time += 10
		m.commit(Op{})
	}
	m.time += 10
	same := true
	for _, r := range read.Reads {
		same = same && m.cells[r.Key] == before[r.Key]
	}
	for k := read.Scans[0].From; k < read.Scans[0].To; k++ {
		same = same && m.cells[k] == before[k]
	}
	if same {
		m.commit(Op{ReadVersion: read.ReadVersion, Reads: read.Reads, Scans: read.Scans})
	}
}

func TestMadeHistoriesPass(t *testing.T) {
	for seed := range uint64(50) {
		m := makeHistory(seed, 400)
		report := Check(madeKeys, &m.log)
		require.Zero(t, report.Count, "seed %d: %s", seed, report)
		require.Greater(t, report.Commits, 100)
	}
}

// mutations make a correct history wrong. Each reports whether it could change that Op;
// it does not if the history might remain correct.
var mutations = map[string]func(rng *rand.Rand, ops []Op, o *Op) bool{
	"another value": func(rng *rand.Rand, _ []Op, o *Op) bool {
		r := someRead(rng, o)
		if r == nil || r.Value == Absent {
			return false
		}
		r.Value++
		return true
	},
	"another version of a value": func(rng *rand.Rand, _ []Op, o *Op) bool {
		r := someRead(rng, o)
		if r == nil || r.Value == Absent {
			return false
		}
		r.Version--
		return true
	},
	"absent": func(rng *rand.Rand, _ []Op, o *Op) bool {
		if len(o.Reads) == 0 || o.Reads[0].Value == Absent {
			return false
		}
		o.Reads[0] = Read{Key: o.Reads[0].Key}
		return true
	},
	"present": func(rng *rand.Rand, ops []Op, o *Op) bool {
		if len(o.Reads) == 0 || o.Reads[0].Value != Absent {
			return false
		}
		o.Reads[0].Value = Unseen
		return true
	},
	"a scan misses something": func(rng *rand.Rand, _ []Op, o *Op) bool {
		if len(o.Scans) == 0 || len(o.Scans[0].Seen) == 0 {
			return false
		}
		i := rng.IntN(len(o.Scans[0].Seen))
		o.Scans[0].Seen = slices.Delete(slices.Clone(o.Scans[0].Seen), i, i+1)
		return true
	},
	"one version twice": func(rng *rand.Rand, ops []Op, o *Op) bool {
		other := &ops[rng.IntN(len(ops))]
		if o.Kind != Commit || other.Kind != Commit || other == o {
			return false
		}
		o.Version = other.Version
		return true
	},
	"two writes in the wrong order": func(rng *rand.Rand, ops []Op, o *Op) bool {
		other := &ops[rng.IntN(len(ops))]
		if o.Kind != Commit || other.Kind != Commit || o.Return >= other.Call {
			return false
		}
		o.Version, other.Version = other.Version, o.Version
		return true
	},
	"a write that did not happen, and was seen": func(rng *rand.Rand, ops []Op, o *Op) bool {
		if o.Kind != Commit || !seenByOthers(ops, o) {
			return false
		}
		o.Outcome = Refused
		return true
	},
	"an old snapshot": func(rng *rand.Rand, ops []Op, o *Op) bool {
		newest := kv.SeqNum(0)
		for i := range ops {
			if ops[i].Kind == Commit && ops[i].Return < o.Call {
				newest = max(newest, ops[i].Version)
			}
		}
		if o.Kind != Snapshot || newest == 0 {
			return false
		}
		o.ReadVersion = newest - 1
		return true
	},
	"a write that had been seen before it was called": func(rng *rand.Rand, ops []Op, o *Op) bool {
		if o.Kind != Commit || !seenByOthers(ops, o) {
			return false
		}
		o.Call = 1 << 40
		o.Return = o.Call + 1
		return true
	},
	"a get that comes late": func(rng *rand.Rand, ops []Op, o *Op) bool {
		if o.Kind != Get {
			return false
		}
		for i := range ops {
			for _, w := range ops[i].Writes {
				if ops[i].Version > o.ReadVersion && w.Key <= o.Reads[0].Key && o.Reads[0].Key < w.end() {
					o.Call = 1 << 40
					o.Return = o.Call + 1
					return true
				}
			}
		}
		return false
	},
	"a write takes effect again": func(rng *rand.Rand, ops []Op, o *Op) bool {
		if o.Kind != Snapshot || len(o.Reads) == 0 || o.Reads[0].Value == Absent || o.ReadVersion <= o.Reads[0].Version {
			return false
		}
		o.Reads[0].Version = o.ReadVersion
		return true
	},
}

func someRead(rng *rand.Rand, o *Op) *Read {
	var all []*Read
	for r := range o.seen() {
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

// seenByOthers reports whether another Op read a value that o put.
func seenByOthers(ops []Op, o *Op) bool {
	for i := range ops {
		for r := range ops[i].seen() {
			if r.Version == o.Version && &ops[i] != o {
				return true
			}
		}
	}
	return false
}

// The checker finds every mutation of a correct history.
func TestMutatedHistoriesAreFoundOut(t *testing.T) {
	for name, mutate := range mutations {
		t.Run(name, func(t *testing.T) {
			done := 0
			for seed := uint64(0); done < 40; seed++ {
				require.Less(t, seed, uint64(2000), "only %d mutations were possible", done)
				m := makeHistory(seed, 60)
				rng := rand.New(rand.NewPCG(seed, 2))
				if o := &m.log.ops[rng.IntN(len(m.log.ops))]; mutate(rng, m.log.ops, o) {
					done++
					require.Positive(t, Check(madeKeys, &m.log).Count, "seed %d, mutated: %s", seed, o)
				}
			}
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		m := makeHistory(1, 100_000)
		b.StartTimer()
		require.Zero(b, Check(madeKeys, &m.log).Count)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/step")
}
