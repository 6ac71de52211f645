package commit

import (
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/wal"
)

// pending is one record on its way from the log to the memtable.
type pending struct {
	encoder record.Encoder // owns payload, if this partition laid it out
	payload []byte
	base    kv.SeqNum
	units   uint32 // 0: all of its writes had been applied before or were refused, it only waits for those before it
	pos     wal.Pos
	level   kv.Durability
	groups  []*WriteGroup
	refused []*WriteGroup // those of which no write is in the record, until they are decided
	commit  *Commit       // of a proposal
	trace   *trace.Batch  // nil unless a caller wants it

	// What this partition's section writes, for what must be decided before it is in the
	// memtable: see changedLocked.
	ops          int
	hashes       []uint64 // of keys
	rangeDeletes bool

	// For the records after it in line: see overtakes.
	together bool     // what shares one number here concerns more than one key
	keys     []uint64 // hashes, in order; nil until a record is compared with this one

	after []*Commit // proposals that have read what this record writes: see readMark

	named      []identifiedUnit // in the order of units; see addNamed
	mayBeNamed idFilter         // has each id in named
	duplicates int              // writes that were applied before

	conflicts []conflictWithin

	inserted bool // into the memtable; hidden until it is published or early
	arrived  bool // at the head of the line, inserted and durable
}

type identifiedUnit struct {
	id      requestID
	content uint64
	unit    uint32
}

// inThisRecord marks, until the record has its numbers, the version of a write
// that is the same as another one of the same record: below it is that one's unit.
const inThisRecord kv.SeqNum = 1 << 63

// errForgotten is why a write that was sent again cannot be answered. For one that was not, it is
// a *kv.LateAttemptError.
var errForgotten = fmt.Errorf("%w: it was sent before, so long ago that its outcome is forgotten; read what is there", kv.ErrUncertain)

// isNew decides on a write that has a request id. It reports whether no attempt at it is known; if
// one is, it has its version or its error already. The caller holds appendMu.
func (r *pending) isNew(w *kv.Write, ids *requestIDs) bool {
	id := requestIDOf(w.RequestID)
	version, known, err := ids.recall(w.RequestID)
	if err != nil {
		w.Err = err
		return false
	}
	if known {
		w.Version, w.Deduplicated = version, true
		r.duplicates++
		return false
	}
	if i := r.findNamed(id); i >= 0 {
		if !sameContent(r.named[i].content, w.RequestID.Content) {
			w.Err = errReused(w.RequestID)
			return false
		}
		w.Version, w.Deduplicated = inThisRecord|kv.SeqNum(r.named[i].unit), true
		r.duplicates++
		return false
	}
	return true
}

// addNamed adds a unit with a request id to the record.
func (r *pending) addNamed(u identifiedUnit) {
	r.named = append(r.named, u)
	r.mayBeNamed.add(u.id)
}

// findNamed returns the index in named of a request id, -1 if the record does not have it.
func (r *pending) findNamed(id requestID) int {
	if !r.mayBeNamed.has(id) {
		return -1
	}
	return slices.IndexFunc(r.named, func(u identifiedUnit) bool { return u.id == id })
}

// idFilter spares most searches in pending.named, which would take time quadratic in the writes of a
// record. It has a bit for each id that was added, and other ids share these bits: a client numbers
// its writes one after the other and has a random id, so up to 1,024 writes of one client in a row
// have different bits, and of 512 writes of as many clients a fifth is searched for on average.
type idFilter [16]uint64

func (f *idFilter) place(id requestID) (word *uint64, bit uint64) {
	n := (id.client + id.sequence) % (64 * uint64(len(f)))
	return &f[n/64], 1 << (n % 64)
}

func (f *idFilter) add(id requestID) {
	word, bit := f.place(id)
	*word |= bit
}

func (f *idFilter) has(id requestID) bool {
	word, bit := f.place(id)
	return *word&bit != 0
}

// note remembers what an operation writes.
func (r *pending) note(op *kv.Op, hash uint64) {
	if op.Kind == kv.KindRangeDelete {
		r.rangeDeletes, r.together = true, true
		return
	}
	r.hashes = append(r.hashes, hash)
}

// concerns reports whether the record writes a key. The caller is the leader.
func (r *pending) concerns(hash uint64) bool {
	if r.rangeDeletes {
		return true // for all that is known without a look at the payload
	}
	if r.keys == nil {
		r.keys = slices.Sorted(slices.Values(r.hashes))
	}
	_, found := slices.BinarySearch(r.keys, hash)
	return found
}

// shown reports whether readers see the record of several partitions at the head of the line,
// because the last of them has inserted it, although this one has not published it yet. It has
// happened, whatever becomes of the log.
func (r *pending) shown() bool { return r.arrived && r.commit != nil && r.commit.joint.Visible() }

// last returns the newest number of the record.
func (r *pending) last() kv.SeqNum { return r.base + kv.SeqNum(r.units) - 1 }
