package backup

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

func samplePiece() Piece {
	return Piece{
		Format: 1, Store: 0x0123456789abcdef, Epoch: 0xfedcba9876543210, Segment: 42, Previous: 41, From: 64, To: 4096,
		After: 4711, Version: 4720, Sum: 0x8b1d2c3e4f506172, Time: momentOf(noon), Until: momentOf(noon), Clock: 1795398130123,
		Gap:   "the log up to segment 41 was given up",
		Marks: []Mark{{momentOf(noon.Add(-time.Second)), 4711}, {momentOf(noon), 4720}},
	}
}

func encodedPiece(t testing.TB, p *Piece) []byte {
	t.Helper()
	b, err := p.Encode()
	require.NoError(t, err)
	return b
}

func TestPieceIsWhatFormatOneWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v1/sample.piece")
	require.NoError(t, err)
	p := samplePiece()
	require.Equal(t, string(golden), string(encodedPiece(t, &p)))
	again, err := DecodePiece("sample", golden)
	require.NoError(t, err)
	require.Equal(t, &p, again)
	for i := range golden {
		damaged := []byte(string(golden))
		damaged[i] ^= 1
		_, err := DecodePiece("sample", damaged)
		require.Error(t, err, at(i))
		_, err = DecodePiece("sample", golden[:i])
		require.ErrorIs(t, err, kv.ErrCorrupt, at(i))
	}
	_, err = DecodePiece("sample", []byte(strings.Replace(string(golden), `"kvd_archive": 1`, `"kvd_archive": 3`, 1)))
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
}

func TestPieceIsWhatFormatTwoWrote(t *testing.T) {
	golden, err := os.ReadFile("testdata/v2/sample.piece")
	require.NoError(t, err)
	p := samplePiece()
	p.Format = 2
	require.Equal(t, string(golden), string(encodedPiece(t, &p)))
	again, err := DecodePiece("sample", golden)
	require.NoError(t, err)
	require.Equal(t, &p, again)
}

// A description has the oldest format that it can have, and one with as many marks as may be is
// within the bound of what is read.
func TestAPieceWithManyMarksHasFormatTwo(t *testing.T) {
	testsize.OneGoroutine(t)
	p := samplePiece()
	p.Version = kv.MaxSeqNum
	for _, c := range []struct{ marks, format int }{{plainMarks, 1}, {plainMarks + 1, 2}, {maxMarks, 2}, {1, 1}} {
		marks := make([]Mark, c.marks)
		for i := range marks {
			marks[i] = Mark{momentOf(noon.Add(time.Duration(i) * time.Second)), kv.MaxSeqNum}
		}
		p.setMarks(marks)
		require.Equal(t, c.format, p.Format, c.marks)
		b := encodedPiece(t, &p)
		require.LessOrEqual(t, len(b), maxPiece)
		again, err := DecodePiece("p", b)
		require.NoError(t, err)
		require.Equal(t, &p, again)
	}
}

func TestImpossiblePiecesAreDamage(t *testing.T) {
	for name, change := range map[string]func(*Piece){
		"format":              func(p *Piece) { p.Format = 0 },
		"segment":             func(p *Piece) { p.Segment = 0 },
		"previous":            func(p *Piece) { p.Previous = 42 },
		"from":                func(p *Piece) { p.From = 0 },
		"no frames":           func(p *Piece) { p.To = p.From },
		"versions":            func(p *Piece) { p.After = p.Version + 1 },
		"mark of the future":  func(p *Piece) { p.Marks[1].Version++ },
		"marks in no order":   func(p *Piece) { p.Marks[0], p.Marks[1] = p.Marks[1], p.Marks[0] },
		"more marks than may": func(p *Piece) { p.Format, p.Marks = 2, make([]Mark, maxMarks+1) },
		"more than plain":     func(p *Piece) { p.Marks = make([]Mark, plainMarks+1) },
	} {
		p := samplePiece()
		change(&p)
		_, err := DecodePiece("p", encodedPiece(t, &p))
		require.ErrorIs(t, err, kv.ErrCorrupt, name)
	}
}

// FuzzDecodePiece: Encode writes exactly what DecodePiece accepts.
func FuzzDecodePiece(f *testing.F) {
	p := samplePiece()
	f.Add(encodedPiece(f, &p))
	p.Gap, p.Marks, p.Clock, p.Until = "", nil, 0, moment{}
	f.Add(encodedPiece(f, &p))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePiece("fuzz", b)
		if err == nil {
			require.Equal(t, string(b), string(encodedPiece(t, p)))
		}
	})
}

func TestNamesOfPieces(t *testing.T) {
	p := samplePiece()
	segment, from, ok := parsePiece(p.name()+pieceSuffix, pieceSuffix)
	require.True(t, ok)
	require.Equal(t, p.Segment, segment)
	require.Equal(t, p.From, from)
	for _, name := range []string{"42-64.piece", "000042-0000000064.frames", "000042-0000000064.piece.tmp", "KVD-ARCHIVE", "-.piece", "000042.piece"} {
		_, _, ok := parsePiece(name, pieceSuffix)
		require.False(t, ok, name)
	}
}
