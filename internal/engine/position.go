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
type positions struct {
	mu      sync.Mutex
	now     logPlace
	samples []logPlace // ascending
	stride  uint64     // entries between two samples
	floor   uint64     // index below which no copy of the store and no partition may stand
}

// logPlace is a Position, and how many bytes of records this process had applied up to there.
type logPlace struct {
	Position
	bytes int64
	when  time.Time
}

// maxSamples bounds the samples; with more, every second is dropped. Guessed: a restart replays
// some thousandth of what is unflushed too much.
const maxSamples = 2048

func newPositions() *positions { return &positions{stride: 1} }

// note notes that the store is at a place. It keeps the place, if keep is set.
func (s *positions) note(p Position, bytes int, keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Position, s.now.bytes = p, s.now.bytes+int64(bytes)
	if n := len(s.samples); !keep && n > 0 && p.Index < s.samples[n-1].Index+s.stride {
		return
	}
	s.now.when = time.Now()
	s.samples = append(s.samples, s.now)
	if len(s.samples) > maxSamples {
		kept := s.samples[:0]
		for i := range s.samples {
			if i%2 == 0 {
				kept = append(kept, s.samples[i])
			}
		}
		clear(s.samples[len(kept):])
		s.samples, s.stride = kept, 2*s.stride
	}
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
