package history

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// The handwritten histories below use keys 1 to 9, all absent at first.

// commit returns a write that was acknowledged at a version, called at call and
// answered at end.
func commit(call, end int64, version kv.SeqNum, writes ...Write) Op {
	return Op{Kind: Commit, Outcome: Done, Call: call, Return: end, Version: version, Writes: writes}
}

// after makes a transaction of a commit: it depends on reads at a version.
func (o Op) after(at kv.SeqNum, reads ...Read) Op {
	o.ReadVersion, o.Reads = at, reads
	return o
}

// scanned adds a scan to the reads of an Op.
func (o Op) scanned(from, to Key, seen ...Read) Op {
	o.Scans = []Scan{{from, to, seen}}
	return o
}

func (o Op) ended(outcome Outcome) Op {
	o.Outcome = outcome
	return o
}

func snapshot(call, end int64, at kv.SeqNum, reads ...Read) Op {
	return Op{Kind: Snapshot, Outcome: Done, Call: call, Return: end, ReadVersion: at, Reads: reads}
}

func get(call, end int64, at kv.SeqNum, read Read) Op {
	return Op{Kind: Get, Outcome: Done, Call: call, Return: end, ReadVersion: at, Reads: []Read{read}}
}

func put(k Key, v Value) Write { return Write{Key: k, Value: v} }

func judge(ops ...Op) *Report {
	var l Log
	for _, o := range ops {
		l.Add(o)
	}
	return Check(10, &l)
}

func TestRightHistoriesPass(t *testing.T) {
	for name, ops := range map[string][]Op{
		"nothing": nil,
		"a write, and reads of it": {
			commit(0, 10, 5, put(1, 11)),
			get(11, 12, 5, Read{1, 11, 5}),
			snapshot(11, 12, 7, Read{1, 11, 5}, Read{2, Absent, 0}),
		},
		"a read during a write sees it": {
			commit(0, 10, 5, put(1, 11)),
			get(1, 2, 5, Read{1, 11, 5}),
		},
		"a read during a write does not see it": {
			commit(0, 10, 5, put(1, 11)),
			snapshot(1, 2, 4, Read{1, Absent, 0}),
		},
		"writes under way together, in either order": {
			commit(0, 10, 6, put(1, 11)),
			commit(1, 9, 5, put(1, 12)),
			get(11, 12, 6, Read{1, 11, 6}),
		},
		"partitions that are not equally far": {
			commit(0, 10, 5, put(1, 11)),
			commit(0, 30, 6, put(2, 12)),
			get(11, 12, 6, Read{2, 12, 6}),
			get(13, 14, 5, Read{1, 11, 5}), // at an older version, but nothing is missing
		},
		"a transaction": {
			commit(0, 10, 5, put(1, 11), put(2, 12)),
			commit(20, 30, 6, put(1, 13)).after(5, Read{1, 11, 5}, Read{2, 12, 5}),
		},
		"a transaction that only others' keys changed under": {
			commit(0, 10, 5, put(1, 11)),
			commit(15, 20, 6, put(3, 12)),
			commit(15, 30, 7, put(1, 13)).after(5, Read{1, 11, 5}).scanned(4, 9),
		},
		"a delete of a range, and a put after it in the same batch": {
			commit(0, 10, 5, put(1, 11), put(2, 12), put(3, 13)),
			commit(11, 20, 6, Write{Key: 1, End: 3}, put(2, 14)),
			snapshot(21, 22, 6).scanned(0, 9, Read{2, 14, 6}, Read{3, 13, 5}),
		},
		"conditions that held": {
			commit(0, 10, 5, put(1, 11)).after(0, Read{1, Absent, 0}),
			commit(11, 20, 6, put(1, 12)).after(0, Read{1, Unseen, 5}),
			commit(21, 30, 7, put(1, 13)).after(0, Read{1, 12, 0}),
			commit(31, 40, 8, put(1, 14)).after(0, Read{1, Unseen, 0}),
		},
		"a failed condition tells a version": {
			commit(0, 10, 5, put(1, 11)),
			get(11, 12, 0, Read{1, Unseen, 5}),
		},
		"an unknown outcome that nobody saw": {
			commit(0, 10, 0, put(1, 11)).ended(Unknown),
			snapshot(20, 30, 9, Read{1, Absent, 0}),
		},
		"an unknown outcome that a client saw, later": {
			commit(0, 10, 0, put(1, 11), put(2, 12)).ended(Unknown),
			snapshot(20, 30, 3, Read{1, Absent, 0}),
			snapshot(40, 50, 9, Read{1, 11, 4}, Read{2, 12, 4}),
		},
		"a condition that a key is present, as one of unknown outcome may have put it": {
			commit(0, 10, 0, put(1, 11)).ended(Unknown),
			commit(11, 20, 5, put(2, 12)).after(0, Read{1, Unseen, 0}),
		},
		"two writes of unknown outcome, each between two deletes": {
			commit(0, 10, 0, put(1, 11)).ended(Unknown),
			commit(0, 10, 5, put(1, Absent)),
			commit(11, 20, 6, put(2, 12)).after(0, Read{1, Unseen, 0}),
			commit(21, 30, 7, put(2, 13)).after(0, Read{1, Unseen, 0}),
			commit(31, 40, 0, put(1, 14)).ended(Unknown),
			commit(31, 40, 8, put(1, Absent)),
			commit(41, 50, 9, put(2, 15)).after(0, Read{1, Unseen, 0}),
		},
		"a refused write that nobody saw": {
			commit(0, 10, 5, put(1, 11)),
			commit(11, 20, 0, put(1, 12)).ended(Refused),
			get(21, 30, 5, Read{1, 11, 5}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			report := judge(ops...)
			require.Zero(t, report.Count, "%s", report)
		})
	}
}

// The checker must find each kind of wrong history, in its smallest form.
func TestWrongHistoriesAreFoundOut(t *testing.T) {
	for name, wrong := range map[string]struct {
		rule string
		ops  []Op
	}{
		"lost update": {"R3", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(20, 30, 6, put(1, 12)).after(5, Read{1, 11, 5}),
			commit(20, 31, 7, put(1, 13)).after(5, Read{1, 11, 5}),
		}},
		"write skew": {"R3", []Op{
			commit(0, 10, 5, put(1, 11), put(2, 12)),
			commit(20, 30, 6, put(1, 13)).after(5, Read{1, 11, 5}, Read{2, 12, 5}),
			commit(20, 30, 7, put(2, 14)).after(5, Read{1, 11, 5}, Read{2, 12, 5}),
		}},
		"write skew over an absent key": {"R3", []Op{
			commit(20, 30, 6, put(1, 13)).after(5, Read{2, Absent, 0}),
			commit(20, 30, 7, put(2, 14)).after(5, Read{1, Absent, 0}),
		}},
		"phantom: a key appears in what was scanned": {"R3", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(20, 30, 6, put(2, 12)),
			commit(20, 30, 7, put(9, 13)).after(5).scanned(1, 4, Read{1, 11, 5}),
		}},
		"phantom: a range delete in what was scanned": {"R3", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(20, 30, 6, Write{Key: 0, End: 3}),
			commit(20, 30, 7, put(9, 13)).after(5).scanned(1, 4, Read{1, 11, 5}),
		}},
		"a scan misses a key": {"R2", []Op{
			commit(0, 10, 5, put(1, 11), put(2, 12)),
			snapshot(11, 12, 5).scanned(1, 4, Read{1, 11, 5}),
		}},
		"a scan gives a key twice": {"R2", []Op{
			commit(0, 10, 5, put(1, 11)),
			snapshot(11, 12, 5).scanned(1, 4, Read{1, 11, 5}, Read{1, 11, 5}),
		}},
		"a scan gives a key out of its range": {"R2", []Op{
			commit(0, 10, 5, put(7, 11)),
			snapshot(11, 12, 5).scanned(1, 4, Read{7, 11, 5}),
		}},
		"stale snapshot": {"R4", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(11, 20, 6, put(1, 12)),
			snapshot(21, 30, 5, Read{1, 11, 5}),
		}},
		"stale snapshot of keys that were never written": {"R4", []Op{
			commit(0, 10, 5, put(1, 11)),
			snapshot(11, 12, 4, Read{2, Absent, 0}),
		}},
		"snapshots go back": {"R4", []Op{
			commit(0, 90, 6, put(1, 11)),
			snapshot(11, 20, 6, Read{1, 11, 6}),
			snapshot(21, 30, 5, Read{1, Absent, 0}),
		}},
		"a snapshot misses what a get has seen": {"R4", []Op{
			commit(0, 90, 6, put(1, 11)),
			get(11, 20, 6, Read{1, 11, 6}),
			snapshot(21, 30, 5, Read{1, Absent, 0}),
		}},
		"stale get": {"R5", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(11, 20, 6, put(1, 12)),
			get(21, 30, 5, Read{1, 11, 5}),
		}},
		"stale get of a deleted key": {"R5", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(11, 20, 6, Write{Key: 1}),
			get(21, 30, 5, Read{1, 11, 5}),
		}},
		"stale get before a range delete": {"R5", []Op{
			commit(0, 10, 5, put(2, 11)),
			commit(11, 20, 6, Write{Key: 1, End: 3}),
			get(21, 30, 5, Read{2, 11, 5}),
		}},
		"stale get that finds nothing": {"R5", []Op{
			commit(0, 10, 5, put(1, 11)),
			get(21, 30, 4, Read{1, Absent, 0}),
		}},
		"stale version of a failed condition": {"R5", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(11, 20, 6, put(1, 12)),
			get(21, 30, 0, Read{1, Unseen, 5}),
		}},
		"gets of a key go back": {"R5", []Op{
			commit(0, 90, 5, put(1, 11)),
			get(11, 20, 5, Read{1, 11, 5}),
			get(21, 30, 4, Read{1, Absent, 0}),
		}},
		"half of a batch is seen": {"R5", []Op{
			commit(0, 90, 5, put(1, 11), put(2, 12)),
			get(11, 20, 5, Read{1, 11, 5}),
			get(21, 30, 4, Read{2, Absent, 0}),
		}},
		"torn batch": {"R2", []Op{
			commit(0, 10, 5, put(1, 11), put(2, 12)),
			snapshot(11, 20, 5, Read{1, 11, 5}, Read{2, Absent, 0}),
		}},
		"dirty read: of a transaction that was refused": {"R2", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(11, 20, 0, put(1, 12)).ended(Refused),
			get(21, 30, 6, Read{1, 12, 6}),
		}},
		"a value that was never written": {"R2", []Op{
			get(21, 30, 6, Read{1, 12, 6}),
		}},
		"a value of another version": {"R2", []Op{
			commit(0, 10, 5, put(1, 11)),
			get(21, 30, 6, Read{1, 11, 6}),
		}},
		"lost write": {"R2", []Op{
			commit(0, 10, 5, put(1, 11)),
			get(21, 30, 6, Read{1, Absent, 0}),
		}},
		"a retried write takes effect twice, seen in between": {"R2", []Op{
			commit(0, 40, 7, put(1, 11)), // sent again, and acknowledged as version 7
			snapshot(20, 30, 5, Read{1, 11, 5}),
		}},
		"a retried write takes effect twice, and overwrites": {"R2", []Op{
			commit(0, 40, 5, put(1, 11)), // acknowledged as version 5, but applied again at 7
			commit(10, 20, 6, put(1, 12)),
			snapshot(50, 60, 8, Read{1, 11, 7}),
		}},
		"real time runs backwards": {"R4", []Op{
			commit(0, 10, 6, put(1, 11)),
			commit(11, 20, 5, put(2, 12)),
		}},
		"a write has a version that had been read before": {"R4", []Op{
			snapshot(0, 10, 6, Read{1, Absent, 0}),
			commit(11, 20, 6, put(2, 12)),
		}},
		"a read of the future": {"R4", []Op{
			get(0, 10, 6, Read{1, 11, 6}),
			commit(11, 20, 6, put(1, 11)),
		}},
		"two writes with one version": {"R1", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(0, 10, 5, put(2, 12)),
		}},
		"a write without a version": {"R1", []Op{
			commit(0, 10, 0, put(1, 11)),
		}},
		"a transaction that read the future": {"R2", []Op{
			commit(0, 10, 5, put(1, 11)).after(5, Read{1, 11, 5}),
		}},
		"a condition that did not hold": {"R3", []Op{
			commit(0, 10, 5, put(1, 11)).after(0, Read{1, Unseen, 0}),
		}},
		"a condition that a key is present, before a write of unknown outcome was called": {"R3", []Op{
			commit(0, 10, 5, put(2, 12)).after(0, Read{1, Unseen, 0}),
			commit(11, 20, 0, put(1, 11)).ended(Unknown),
		}},
		"a condition that a key is present, after a delete, as a write of unknown outcome had put it before": {"R3", []Op{
			commit(0, 10, 0, put(1, 11)).ended(Unknown),
			commit(11, 20, 5, put(2, 12)).after(0, Read{1, Unseen, 0}),
			commit(21, 30, 6, put(1, Absent)),
			commit(31, 40, 7, put(2, 13)).after(0, Read{1, Unseen, 0}),
		}},
		"an old version took part in a condition": {"R3", []Op{
			commit(0, 10, 5, put(1, 11)),
			commit(0, 20, 6, put(1, 12)),
			commit(0, 30, 7, put(1, 13)).after(0, Read{1, Unseen, 5}),
		}},
		"an unknown outcome is half there": {"R2", []Op{
			commit(0, 10, 0, put(1, 11), put(2, 12)).ended(Unknown),
			snapshot(40, 50, 9, Read{1, 11, 4}, Read{2, Absent, 0}),
		}},
		"an unknown outcome changes its mind": {"R2", []Op{
			commit(0, 10, 0, put(1, 11)).ended(Unknown),
			snapshot(20, 30, 8, Read{1, Absent, 0}),
			snapshot(40, 50, 9, Read{1, 11, 4}),
		}},
		"an unknown outcome is older than what was acknowledged before it": {"R4", []Op{
			commit(0, 10, 5, put(2, 11)),
			commit(11, 20, 0, put(1, 12)).ended(Unknown),
			snapshot(21, 30, 9, Read{1, 12, 4}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			report := judge(wrong.ops...)
			require.Positive(t, report.Count)
			assert.Equal(t, wrong.rule, report.Violations[0].Rule, "%s", report)
		})
	}
}

// A report counts all violations and keeps the first of them.
func TestReportIsBounded(t *testing.T) {
	var ops []Op
	for range 100 {
		ops = append(ops, get(0, 10, 6, Read{1, 12, 6}))
	}
	report := judge(ops...)
	assert.Equal(t, 100, report.Count)
	assert.Len(t, report.Violations, maxViolations)
}

func TestValuesProveThemselves(t *testing.T) {
	for _, v := range []Value{1, 39, 40, Unseen - 1} {
		got, err := ParseValue(7, v.Bytes(7))
		require.NoError(t, err)
		require.Equal(t, v, got)
	}
	good := Value(1234567).Bytes(7)
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 1
		if v, err := ParseValue(7, bad); err == nil {
			require.NotEqual(t, Value(1234567), v, "byte %d", i)
		}
	}
	for _, bad := range [][]byte{nil, []byte("x"), good[:len(good)-1], Value(1234567).Bytes(8), Absent.Bytes(7), Unseen.Bytes(7)} {
		_, err := ParseValue(7, bad)
		require.Error(t, err, "%q", bad)
	}
	for _, k := range []Key{0, 1, 9_999_999} {
		got, err := ParseKey(k.Bytes())
		require.NoError(t, err)
		require.Equal(t, k, got)
	}
	_, err := ParseKey([]byte("123"))
	require.Error(t, err)
}
