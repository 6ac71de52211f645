package backup

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/wal"
)

const (
	// pieceFormat is the format of descriptions with up to plainMarks marks, and longFormat of those
	// that may have maxMarks.
	pieceFormat  = 1
	longFormat   = 2
	pieceSuffix  = ".piece"
	framesSuffix = ".frames"
	plainMarks   = 4096
	// maxMarks are those of nine hours in which a new version was seen each second.
	maxMarks = 1 << 15
	// maxPiece bounds what is read of a description: some 40 bytes for each mark.
	maxPiece = 2 << 20
)

// Piece describes successive frames of one segment of a store's log, in an archive.
type Piece struct {
	Format   int       `json:"kvd_archive"`
	Store    hex64     `json:"store"`    // id of the store
	Epoch    hex64     `json:"epoch"`    // of the opening of the store that archived it
	Segment  uint64    `json:"segment"`  // of the log
	Previous uint64    `json:"previous"` // the segment before; 0: none
	From     int64     `json:"from"`     // offsets in the segment
	To       int64     `json:"to"`
	Ends     bool      `json:"ends"`    // the segment ends here
	After    kv.SeqNum `json:"after"`   // the last version before it
	Version  kv.SeqNum `json:"version"` // the last one in it; After if it has none
	Sum      hex64     `json:"xxh64"`   // of the frames
	Time     moment    `json:"time"`    // when it was archived
	// Until is a time up to which the archive has everything that was acknowledged; zero if
	// only the marks tell.
	Until moment `json:"until,omitzero"`
	// Clock is a time in Unix milliseconds, which the store's clock of expiry had not
	// passed; 0: the store never had a key that expires.
	Clock uint64 `json:"clock,omitempty"`
	// Gap is why the log before this piece is not in the archive, if it is not.
	Gap   string `json:"gap,omitempty"`
	Marks []Mark `json:"marks,omitempty"`
}

// Mark says which version readers saw at a time.
type Mark struct {
	At      moment
	Version kv.SeqNum
}

// MarshalText implements encoding.TextMarshaler.
func (m Mark) MarshalText() ([]byte, error) {
	at, err := m.At.MarshalText()
	return fmt.Appendf(at, " %d", uint64(m.Version)), err
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mark) UnmarshalText(text []byte) error {
	at, version, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseUint(version, 10, 63)
	if err != nil {
		return err
	}
	m.Version = kv.SeqNum(n)
	return m.At.UnmarshalText([]byte(at))
}

// moment is a time in UTC, in milliseconds.
type moment struct{ time.Time }

const momentLayout = "2006-01-02T15:04:05.000Z"

func momentOf(t time.Time) moment { return moment{t.UTC().Truncate(time.Millisecond)} }

func (m moment) String() string { return m.Format(momentLayout) }

// MarshalText implements encoding.TextMarshaler.
func (m moment) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *moment) UnmarshalText(text []byte) (err error) {
	m.Time, err = time.Parse(momentLayout, string(text))
	return err
}

// DecodePiece decodes the description of a piece; file is for its errors.
//
// Errors: a *kv.CorruptionError, or kv.ErrUnsupportedVersion.
func DecodePiece(file string, b []byte) (*Piece, error) {
	p := new(Piece)
	if err := unseal(file, b, "kvd_archive", longFormat, p); err != nil {
		return nil, err
	}
	return p, nil
}

// Encode returns the bytes of the description, as the package comment shows them.
func (p *Piece) Encode() ([]byte, error) { return seal(p) }

// mostMarks returns how many marks a description of the format may have.
func (p *Piece) mostMarks() int {
	if p.Format == pieceFormat {
		return plainMarks
	}
	return maxMarks
}

// setMarks sets the marks, in the oldest format that may have so many.
func (p *Piece) setMarks(marks []Mark) {
	p.Marks, p.Format = marks, pieceFormat
	if len(marks) > plainMarks {
		p.Format = longFormat
	}
}

func (p *Piece) check() error {
	switch {
	case p.Format != pieceFormat && p.Format != longFormat:
		return fmt.Errorf("format %d does not exist", p.Format)
	case p.Segment == 0 || p.Previous >= p.Segment:
		return fmt.Errorf("segment %d does not follow segment %d", p.Segment, p.Previous)
	case p.From < wal.FirstFrame || p.To <= p.From:
		return fmt.Errorf("there are no frames from offset %d to %d", p.From, p.To)
	case p.After > p.Version || p.Version > kv.MaxSeqNum:
		return fmt.Errorf("version %d does not follow version %d", p.Version, p.After)
	case len(p.Marks) > p.mostMarks():
		return fmt.Errorf("%d marks, want at most %d", len(p.Marks), p.mostMarks())
	}
	for i, m := range p.Marks {
		if m.Version > p.Version || i > 0 && m.Version < p.Marks[i-1].Version {
			return fmt.Errorf("the mark of version %d is in the wrong place", m.Version)
		}
	}
	return nil
}

// name returns the name of the piece's files, without what distinguishes them.
func (p *Piece) name() string { return fmt.Sprintf("%06d-%010d", p.Segment, p.From) }

// parsePiece takes the name of a file of a piece apart; ok is false if kvd writes no such name.
func parsePiece(file, suffix string) (segment uint64, from int64, ok bool) {
	name, isPiece := strings.CutSuffix(file, suffix)
	first, second, _ := strings.Cut(name, "-")
	segment, err := strconv.ParseUint(first, 10, 64)
	from, err2 := strconv.ParseInt(second, 10, 64)
	p := Piece{Segment: segment, From: from}
	return segment, from, isPiece && err == nil && err2 == nil && p.name() == name
}

// follows reports whether nothing is missing between another piece and p.
func (p *Piece) follows(other *Piece) bool {
	if p.After != other.Version {
		return false
	}
	if p.Segment == other.Segment {
		return p.From == other.To && !other.Ends
	}
	return other.Ends && p.Previous == other.Segment && p.From == wal.FirstFrame
}
