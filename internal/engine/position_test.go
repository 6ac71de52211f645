package engine

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// secondEntries are those of the kinds that version 2 brought.
func secondEntries() []entry { return []entry{{kind: entryCompare, base: 904, units: 1}} }

func examplePosition() Position {
	return Position{Index: 300, Term: 7, Seq: 1 << 40, Time: 1_700_000_000_000, Conf: []byte("configuration")}
}

func exampleEntries() []entry {
	return []entry{
		{kind: entryWrites, base: 900, units: 3, payload: []byte("payload")},
		{kind: entryTime, base: 903, units: 1, time: 1_700_000_000_000},
	}
}

// The formats of the first version: what nodes send each other and keep.
func TestFormatsOfAMemberAreThoseOfVersionOne(t *testing.T) {
	at := examplePosition()
	encoded := at.Encode()
	lines := []string{hex.EncodeToString(encoded)}
	for _, e := range exampleEntries() {
		lines = append(lines, hex.EncodeToString(e.encode()))
	}
	want, err := os.ReadFile("testdata/member/v1.hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), strings.Join(lines, "\n"), "a format has changed: that needs a new version")

	decoded, err := DecodePosition(encoded)
	require.NoError(t, err)
	require.Equal(t, at, decoded)
	want, err = os.ReadFile("testdata/member/v2.hex")
	require.NoError(t, err)
	for _, e := range secondEntries() {
		require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(e.encode()), "a format has changed: that needs a new version")
	}
	for _, e := range append(exampleEntries(), secondEntries()...) {
		got, err := decodeEntry(e.encode())
		require.NoError(t, err)
		require.Equal(t, e, got)
	}
}

func TestDamagedFormatsOfAMemberAreRefused(t *testing.T) {
	at := examplePosition()
	b := at.Encode()
	for n := range positionBytes {
		_, err := DecodePosition(b[:n])
		require.ErrorIs(t, err, kv.ErrCorrupt, "%d bytes", n)
	}
	b[0]++
	_, err := DecodePosition(b)
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	for _, e := range append(exampleEntries(), secondEntries()...) {
		b := e.encode()
		for n := range entryHeaderBytes {
			_, err := decodeEntry(b[:n])
			require.ErrorIs(t, err, kv.ErrCorrupt, "%d bytes", n)
		}
		b[0] = 3 - b[0]
		_, err := decodeEntry(b)
		require.ErrorIs(t, err, kv.ErrCorrupt, "a version that does not have the kind")
		b[0] = entryVersion + 1
		_, err = decodeEntry(b)
		require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	}
	for _, e := range []entry{
		{kind: entryWrites, base: 1}, {kind: entryWrites, units: 1}, {kind: 9, base: 1, units: 1},
		{kind: entryTime, base: 1, units: 2}, {kind: entryCompare, base: 1, units: 2}, {kind: entryCompare, base: 1, units: 1, payload: []byte("x")}, {kind: entryWrites, base: kv.MaxSeqNum, units: 1},
	} {
		_, err := decodeEntry(e.encode())
		require.ErrorIs(t, err, kv.ErrCorrupt, "%+v", e)
	}
}

func FuzzDecodeFormatsOfAMember(f *testing.F) {
	at := examplePosition()
	f.Add(at.Encode())
	for _, e := range append(exampleEntries(), secondEntries()...) {
		f.Add(e.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if at, err := DecodePosition(b); err == nil {
			require.Equal(t, b, at.Encode())
		}
		if e, err := decodeEntry(b); err == nil {
			require.Equal(t, b, e.encode())
		}
	})
}

// The place that a partition saves is never above what it has flushed, nor below what the log
// has given up, and the samples are bounded.
func TestPositionsKnowNoPlaceAboveWhatIsFlushed(t *testing.T) {
	s := newPositions()
	const entries = 10 * maxSamples
	for i := range uint64(entries) {
		s.note(Position{Index: i + 1, Term: 1, Seq: kv.SeqNum(2 * (i + 1))}, 10, i == 0)
	}
	require.LessOrEqual(t, len(s.samples), maxSamples)
	now := time.Now()
	_, found := s.at(1, now, 0)
	require.False(t, found)
	for seq := kv.SeqNum(2); seq <= 2*entries+2; seq += 111 {
		at, found := s.at(seq, now, 0)
		require.True(t, found)
		require.LessOrEqual(t, at.Seq, seq)
		require.LessOrEqual(t, seq-at.Seq, kv.SeqNum(2*s.stride+2), "at %d", seq)
	}
	_, found = s.at(2*entries, now.Add(-time.Hour), 11*entries)
	require.False(t, found, "all places are too young")
	at, found := s.at(2*entries, now.Add(-time.Hour), 5*entries)
	require.True(t, found)
	require.InDelta(t, entries/2, at.Index, float64(s.stride), "so much log is enough")
	require.LessOrEqual(t, s.since(entries), int64(10*s.stride))
	require.InDelta(t, 10*(entries-500), s.since(500), float64(10*s.stride))
	require.EqualValues(t, 10*entries, s.since(0))
	old, found := s.before(5 * entries)
	require.True(t, found)
	require.LessOrEqual(t, old.Index, uint64(entries/2))
	_, found = s.before(10*entries + 1)
	require.False(t, found)
	s.forget(old.Index+1, old.Index+1)
	_, found = s.at(old.Seq, now, 0)
	require.False(t, found)
	at, found = s.at(old.Seq+2*kv.SeqNum(s.stride), now, 0)
	require.True(t, found)
	require.Greater(t, at.Index, old.Index)
}
