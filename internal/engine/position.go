package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

// Position is a place in the history of a replicated log: the state of the store after an
// entry.
type Position struct {
	Index, Term uint64    // of the entry
	Seq         kv.SeqNum // the newest number up to there
	Time        uint64    // of the store's clock, Unix milliseconds
	Conf        []byte    // the configuration of the cluster, as its log encodes it
}

const (
	positionVersion = 1
	positionBytes   = 33 // without the configuration
)

// Encode returns the position as manifests hold it: u8 version | u64 index | u64 term |
// u64 number | u64 time | configuration. Numbers are little-endian.
func (p *Position) Encode() []byte {
	b := make([]byte, 0, positionBytes+len(p.Conf))
	b = append(b, positionVersion)
	for _, n := range [...]uint64{p.Index, p.Term, uint64(p.Seq), p.Time} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return append(b, p.Conf...)
}

// DecodePosition is the inverse of Encode. The position shares the configuration with b.
//
// Errors: kv.ErrUnsupportedVersion; kv.ErrCorrupt.
func DecodePosition(b []byte) (Position, error) {
	if len(b) > 0 && b[0] != positionVersion {
		return Position{}, fmt.Errorf("%w %d of a position in the log; this kvd knows %d: use a newer kvd", kv.ErrUnsupportedVersion, b[0], positionVersion)
	}
	if len(b) < positionBytes {
		return Position{}, fmt.Errorf("%w: a position in the log has %d bytes, want at least %d", kv.ErrCorrupt, len(b), positionBytes)
	}
	p := Position{
		Index: binary.LittleEndian.Uint64(b[1:]), Term: binary.LittleEndian.Uint64(b[9:]),
		Seq: kv.SeqNum(binary.LittleEndian.Uint64(b[17:])), Time: binary.LittleEndian.Uint64(b[25:]),
	}
	if p.Seq > kv.MaxSeqNum {
		return Position{}, fmt.Errorf("%w: a position in the log has number %d", kv.ErrCorrupt, p.Seq)
	}
	if len(b) > positionBytes {
		p.Conf = b[positionBytes:]
	}
	return p, nil
}

// positions knows where in the log the store has been: a sample of places. A partition that has
// flushed all numbers up to one saves a place that is not above it. That the place may be lower
// than what is flushed costs a longer replay, in which what is in tables is skipped by number,
// and whose request ids are remembered: see nameSpan.
//
// The distance between two neighbours grows with their age, in bytes of records: either no place
// was noted between them, or it is at most 1/sampleSpan of what was applied after the newer one. So
// for each place that was noted since the oldest sample, one is known that is older by at most
// 1/sampleSpan of what was applied after it: for the newest place that is the place itself, for one
// that 64 MiB came after at most 4 MiB. This holds whatever the sizes of records are, and however
// much of the log is kept. A fixed distance in entries would not do: it is short for small records,
// and for large ones longer than a memtable or the log may be.
//
// thin leaves at most 1,450 samples. Of three successive ones the oldest has at least
// 1+1/sampleSpan times as much after it as the newest; with int64 bytes that holds for at most
// 2*log(2^63)/log(1+1/16) = 1,441 samples. The two ends and the change of the configuration are
// the rest. So thin is called once in some 600 notes, and its cost per note is constant.
type positions struct {
	mu      sync.Mutex
	now     logPlace
	samples []logPlace // ascending
	changed uint64     // index of the newest change of the configuration
	floor   uint64     // index below which no copy of the store and no partition may stand
}

// logPlace is a Position, and how many bytes of records this process had applied up to there.
type logPlace struct {
	Position
	bytes int64
	when  time.Time
}

const (
	// maxSamples bounds the samples: with more, thin drops some. It is far enough above what thin
	// leaves.
	maxSamples = 2048
	// sampleSpan is the least age of two neighbours as a multiple of their distance. Guessed: a
	// restart replays up to 6 % more than needed, and that much more of the log is kept.
	sampleSpan = 16
)

func newPositions() *positions { return &positions{} }

// note notes that the store is at a place, and how many bytes of records came since the place
// before. changed says that the configuration is not that of the place before.
func (s *positions) note(p Position, bytes int, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = logPlace{Position: p, bytes: s.now.bytes + int64(bytes), when: time.Now()}
	if changed {
		s.changed = p.Index
	}
	if s.samples = append(s.samples, s.now); len(s.samples) > maxSamples {
		s.thin()
	}
}

// thin drops the samples whose neighbours are near enough to each other: see positions. The newest
// change of the configuration stays: without it, a copy of the store up to a number shortly after it
// would have the configuration before, and lack a node (see from). The samples that stay move to
// the end of the slice, newest first, before the others are deleted. The caller holds s.mu.
func (s *positions) thin() {
	first := len(s.samples) - 1
	for i := first - 1; i >= 0; i-- {
		newer := s.samples[first].bytes
		if i > 0 && s.samples[i].Index != s.changed && newer-s.samples[i-1].bytes <= (s.now.bytes-newer)/sampleSpan {
			continue
		}
		first--
		s.samples[first] = s.samples[i]
	}
	s.samples = slices.Delete(s.samples, 0, first)
}

// at returns the newest known place that is not above a number, and that is old: it was passed
// by the time given, or so many bytes of records came after.
func (s *positions) at(seq kv.SeqNum, until time.Time, bytes int64) (logPlace, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.samples) - 1; i >= 0; i-- {
		p := &s.samples[i]
		if p.Index < s.floor {
			break
		}
		if p.Seq <= seq && (!p.when.After(until) || s.now.bytes-p.bytes >= bytes) {
			return *p, true
		}
	}
	return logPlace{}, false
}

// from returns the place from which a copy of the store continues, if its tables hold everything
// up to a number. It is old, as that of at, if the configuration was the same since then: nodes
// that were added later must be in that of a copy that they get.
func (s *positions) from(seq kv.SeqNum, until time.Time, bytes int64) (Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *logPlace
	for i := len(s.samples) - 1; i >= 0; i-- {
		p := &s.samples[i]
		switch {
		case p.Seq > seq:
			continue
		case p.Index < s.floor && found == nil:
			return Position{}, false
		case p.Index < s.floor:
			return found.Position, true
		case found != nil && string(found.Conf) != string(p.Conf):
			return found.Position, true
		}
		if found = p; !p.when.After(until) || s.now.bytes-p.bytes >= bytes {
			return p.Position, true
		}
	}
	if found == nil {
		return Position{}, false
	}
	return found.Position, true
}

// before returns the newest known place that so many bytes of records came after.
func (s *positions) before(bytes int64) (logPlace, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.samples) - 1; i >= 0; i-- {
		if s.now.bytes-s.samples[i].bytes >= bytes {
			return s.samples[i], true
		}
	}
	return logPlace{}, false
}

// since returns how many bytes of records were applied after an index.
func (s *positions) since(index uint64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.samples) - 1; i >= 0; i-- {
		if s.samples[i].Index <= index {
			return s.now.bytes - s.samples[i].bytes
		}
	}
	return s.now.bytes
}

// forget lets no partition save a place before an index, up to which the log is given up, and
// drops the samples before another one.
func (s *positions) forget(floor, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = floor
	s.samples = slices.DeleteFunc(s.samples, func(p logPlace) bool { return p.Index < index })
}
