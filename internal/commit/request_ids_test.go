package commit

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// forgot reports whether the outcome of a write is forgotten.
func forgot(w *requestIDs, o kv.RequestID) bool {
	_, _, err := w.recall(o)
	_, late := errors.AsType[*kv.LateAttemptError](err)
	return o.Retried && err == errForgotten || !o.Retried && late
}

// The window is compared with a list of all named writes: it knows the newest of
// them, and whatever it does not know it owns up to.
func TestRequestIDsNeverDenyAWriteItForgot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		w := newRequestIDs(NewRequestWindow(size))
		var written []requestID                           // that of version i+1 is written[i]
		step := rapid.Uint64Range(1, 300).Draw(t, "step") // how many of them are in a run
		for range rapid.IntRange(0, 40).Draw(t, "writes") {
			n := requestID{client: rapid.Uint64Range(1, 3).Draw(t, "client"), sequence: step * uint64(len(written)+1)}
			written = append(written, n)
			w.add(n, kv.SeqNum(len(written)), n.sequence)
		}
		for i, n := range written {
			version := kv.SeqNum(i + 1)
			got, content, known := w.find(n)
			assert.Equal(t, i >= len(written)-size, known, "version %d of %d, size %d", version, len(written), size)
			if known {
				assert.Equal(t, version, got)
				assert.Equal(t, n.sequence, content)
				continue
			}
			seen := kv.SeqNum(rapid.IntRange(0, i).Draw(t, "seen"))
			again := kv.RequestID{ClientID: n.client, Sequence: n.sequence, Retried: true, KnownVersion: seen}
			assert.True(t, forgot(w, again), "version %d was applied and is not known; the caller had seen %d", version, seen)
			first := kv.RequestID{ClientID: n.client, Sequence: n.sequence}
			assert.True(t, forgot(w, first), "version %d was applied and is not known; the first attempt may come now", version)
		}
		held := 0
		for key, r := range w.runs {
			assert.NotEmpty(t, r.low, "%v", key)
			assert.Len(t, r.versions, len(r.low))
			assert.Len(t, r.contents, len(r.low))
			held += len(r.low)
		}
		assert.LessOrEqual(t, held, size)
		assert.EqualValues(t, held, w.window.held.Load())
		assert.LessOrEqual(t, len(w.spare), spareRuns)
		fresh := kv.RequestID{ClientID: 9, Sequence: 9, Retried: true, KnownVersion: kv.SeqNum(len(written))}
		assert.False(t, forgot(w, fresh), "the write of a caller that has seen the newest version did not happen")
		fresh.Retried = false
		fresh.KnownVersion = 0
		assert.False(t, forgot(w, fresh), "what was never sent before cannot have been applied")
	})
}

// A write that was not applied leaves nothing: its id is unknown again, and the others are
// known as before, until as many have come as the window holds.
func TestRetractedRequestIDsAreUnknown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "size")
		w := newRequestIDs(NewRequestWindow(size))
		id := func(i int) requestID { return requestID{client: 1, sequence: uint64(200 * i)} }
		applied := map[int]bool{}
		n := rapid.IntRange(1, 30).Draw(t, "writes")
		for i := 1; i <= n; i++ {
			w.add(id(i), kv.SeqNum(i), uint64(i))
			if applied[i] = rapid.Bool().Draw(t, "applied"); !applied[i] {
				w.retract(id(i))
				w.retract(id(i))
			}
		}
		for i := 1; i <= n; i++ {
			_, _, known := w.find(id(i))
			assert.False(t, known && !applied[i], "write %d was not applied", i)
			assert.False(t, applied[i] && i > n-size && !known, "write %d of %d is one of the newest %d", i, n, size)
			again := kv.RequestID{ClientID: 1, Sequence: uint64(200 * i), Retried: true}
			assert.True(t, known || !applied[i] || forgot(w, again), "write %d is neither known nor forgotten", i)
		}
	})
}

// Partitions remember the newest ids of the store, however the writes are spread. What
// they have forgotten is never taken for a new write, and the next write of a client always is one.
func TestPartitionsShareOneWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 12).Draw(t, "size")
		window := NewRequestWindow(size)
		partitions := make([]*requestIDs, rapid.IntRange(1, 4).Draw(t, "partitions"))
		for i := range partitions {
			partitions[i] = newRequestIDs(window)
		}
		type write struct {
			id requestID
			in *requestIDs
		}
		var written []write // that of version i+1 is written[i]
		last := map[uint64]uint64{}
		for range rapid.IntRange(1, 60).Draw(t, "writes") {
			client := rapid.Uint64Range(1, 3).Draw(t, "client")
			last[client] += rapid.Uint64Range(1, 300).Draw(t, "step")
			n := write{requestID{client, last[client]}, rapid.SampledFrom(partitions).Draw(t, "partition")}
			if rapid.Bool().Draw(t, "otherwise") {
				n.id.sequence |= branchBit
			}
			first := kv.RequestID{ClientID: client, Sequence: n.id.sequence}
			_, known, err := n.in.recall(first)
			assert.NoError(t, err, "it is new")
			assert.False(t, known)
			written = append(written, n)
			n.in.add(n.id, kv.SeqNum(len(written)), 0)
			trims := rapid.IntRange(0, 9).Draw(t, "trim") == 0
			if trims {
				for _, p := range partitions {
					for p.trim(3) {
					}
				}
			}
			held := 0
			for i, w := range written {
				_, _, known := w.in.find(w.id)
				if assert.True(t, known || i < len(written)-size, "version %d of %d", i+1, len(written)); known {
					held++
					assert.False(t, trims && i < len(written)-size, "version %d of %d", i+1, len(written))
					continue
				}
				_, _, err := w.in.recall(kv.RequestID{ClientID: w.id.client, Sequence: w.id.sequence})
				assert.ErrorIs(t, err, kv.ErrUncertain, "version %d of %d", i+1, len(written))
			}
			assert.EqualValues(t, held, window.held.Load())
		}
		clients := map[uint64]int{}
		for _, p := range partitions {
			for key, r := range p.runs {
				clients[key.client]++
				assert.Same(t, window.marks[key.client], r.mark)
			}
		}
		unused := 0
		for client, m := range window.marks {
			assert.Equal(t, clients[client], m.runs)
			if m.runs == 0 {
				unused++
			}
		}
		assert.Equal(t, unused, window.idle)
	})
}

// A write that was retracted leaves no mark.
func TestARetractedIDLeavesNoMark(t *testing.T) {
	w := newRequestIDs(NewRequestWindow(1))
	w.add(requestID{1, 5}, 1, 0)
	w.retract(requestID{1, 5})
	w.add(requestID{2, 1}, 2, 0)
	w.add(requestID{2, 2}, 3, 0)
	assert.NotContains(t, w.window.marks, uint64(1))
	assert.False(t, forgot(w, kv.RequestID{ClientID: 1, Sequence: 5}))
	assert.True(t, forgot(w, kv.RequestID{ClientID: 2, Sequence: 1}))
	assert.False(t, forgot(newRequestIDs(NewRequestWindow(1)), kv.RequestID{ClientID: 1}), "the sequence 0")
}

// While no partition is trimmed, and all writes go to one after the other, the ids are bounded.
func TestRequestIDsAreBounded(t *testing.T) {
	const size, count = 300, 16
	window := NewRequestWindow(size)
	version := kv.SeqNum(0)
	for range count {
		p := newRequestIDs(window)
		for range 3 * size {
			version++
			p.add(requestID{1, uint64(version)}, version, 0)
			assert.LessOrEqual(t, window.held.Load(), window.most()+count)
		}
		known := 0
		p.line.newest(func(n *placedID) bool {
			_, _, found := p.find(n.id)
			assert.True(t, found)
			known++
			return true
		})
		assert.NotZero(t, known)
		assert.LessOrEqual(t, len(p.line.chunks), known/len(idChunk{})+2)
	}
}

// The marks of clients whose ids are all forgotten are bounded: the ones used last stay.
func TestMarksAreBounded(t *testing.T) {
	w := newRequestIDs(NewRequestWindow(1))
	const clients = maxUnusedMarks + 100
	for i := range uint64(clients) {
		w.add(requestID{i + 1, 1}, kv.SeqNum(i+1), 0)
	}
	assert.Len(t, w.window.marks, maxUnusedMarks+1)
	forgot := func(client uint64) bool { return forgot(w, kv.RequestID{ClientID: client, Sequence: 1}) }
	assert.False(t, forgot(99))
	assert.True(t, forgot(100))
	assert.True(t, forgot(clients-1))
	w.add(requestID{100, 2}, clients+1, 0) // in use again
	w.add(requestID{clients + 1, 1}, clients+2, 0)
	assert.True(t, forgot(100), "it was used last")
	assert.False(t, forgot(101))
}

// What was applied before the coordinator began is not known. A first attempt then tells by what its
// caller had seen whether a retry of it may have been applied.
func TestAFirstAttemptTellsWhatItsCallerHadSeen(t *testing.T) {
	w := newRequestIDs(NewRequestWindow(100))
	w.add(requestID{1, 8}, 95, 0) // in the log
	w.startAfter(100)
	for known, late := range map[kv.SeqNum]bool{1: true, 99: true, 100: false, 101: false, 0: false} {
		assert.Equal(t, late, forgot(w, kv.RequestID{ClientID: 1, Sequence: 7, KnownVersion: known}), "%d", known)
	}
	version, known, err := w.recall(kv.RequestID{ClientID: 1, Sequence: 8, KnownVersion: 3})
	assert.NoError(t, err)
	assert.True(t, known)
	assert.EqualValues(t, 95, version)
	for i := range kv.SeqNum(200) {
		w.add(requestID{2, uint64(i + 1)}, 101+i, 0)
	}
	for known, late := range map[kv.SeqNum]bool{100: false, 250: false, 0: false} {
		assert.Equal(t, late, forgot(w, kv.RequestID{ClientID: 1, Sequence: 9, KnownVersion: known}), "a caller that has been idle has seen %d", known)
	}
}
