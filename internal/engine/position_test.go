package engine

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
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

// appliedPlaces has, beside the samples, every place: how many bytes were applied up to there. Entry
// i has index i and number 2*i.
type appliedPlaces struct {
	*positions
	bytes []int64
}

func newAppliedPlaces() *appliedPlaces { return &appliedPlaces{newPositions(), []int64{0}} }

func (a *appliedPlaces) write(n, bytes int) {
	for range n {
		i := uint64(len(a.bytes))
		a.bytes = append(a.bytes, a.bytes[i-1]+int64(bytes))
		a.note(Position{Index: i, Term: 1, Seq: kv.SeqNum(2 * i)}, bytes, i == 1)
	}
}

// age returns how many bytes were applied after an entry.
func (a *appliedPlaces) age(i uint64) int64 { return a.bytes[len(a.bytes)-1] - a.bytes[i] }

// forgetOld gives up the log as trim does, if everything is flushed.
func (a *appliedPlaces) forgetOld(segment, log int64) {
	keep, _ := a.before(segment)
	lagged, _ := a.before(log)
	a.forget(keep.Index, lagged.Index)
}

// The place that a partition saves is never above what it has flushed, nor below what the log
// has given up.
func TestPositionsKnowNoPlaceAboveWhatIsFlushed(t *testing.T) {
	a := newAppliedPlaces()
	const entries = 10 * maxSamples
	a.write(entries, 10)
	now := time.Now()
	_, found := a.at(1, now, 0)
	require.False(t, found)
	for seq := kv.SeqNum(2); seq <= 2*entries+2; seq += 111 {
		at, found := a.at(seq, now, 0)
		require.True(t, found)
		require.LessOrEqual(t, at.Seq, seq)
	}
	_, found = a.at(2*entries, now.Add(-time.Hour), 11*entries)
	require.False(t, found, "all places are too young")
	at, found := a.at(2*entries, now.Add(-time.Hour), 5*entries)
	require.True(t, found)
	require.GreaterOrEqual(t, a.age(at.Index), int64(5*entries), "so much log is enough")
	require.EqualValues(t, 10*entries, a.since(0))
	_, found = a.before(10*entries + 1)
	require.False(t, found)

	old, found := a.before(5 * entries)
	require.True(t, found)
	a.forget(old.Index+1, old.Index+1)
	_, found = a.at(old.Seq, now, 0)
	require.False(t, found)
	at, found = a.at(2*entries, now, 0)
	require.True(t, found)
	require.Greater(t, at.Index, old.Index)
}

// However records grow or shrink, for every place one is known that is hardly older, and the samples
// are bounded.
func TestDistancesOfPositionsGrowWithTheirAge(t *testing.T) {
	testsize.OneGoroutine(t)
	const mib = 1 << 20
	type phase struct{ entries, bytes int }
	for name, phases := range map[string][]phase{
		"small and then large": {{1 << 19, 100}, {600, mib}},
		"large and then small": {{600, mib}, {1 << 18, 100}},
		"mixed":                {{1 << 16, 30}, {1, 64 * mib}, {1 << 16, 3000}, {100, 5 * mib}, {1 << 16, 21}, {1, 1 << 40}, {1 << 16, 500}},
	} {
		for _, forgets := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, forgets %t", name, forgets), func(t *testing.T) {
				a := newAppliedPlaces()
				for _, p := range phases {
					for left := p.entries; left > 0; left -= 100 {
						a.write(min(left, 100), p.bytes)
						require.LessOrEqual(t, len(a.samples), maxSamples)
						if forgets {
							a.forgetOld(64*mib, 512*mib)
						}
						if left%(1<<14) <= 100 { // now and then, and at the end
							a.checkDense(t)
						}
					}
				}
			})
		}
	}
}

// checkDense asks for many places that were not given up, most of them new. Before that the samples
// are thinned once more than they have to be.
func (a *appliedPlaces) checkDense(t *testing.T) {
	a.thin()
	require.LessOrEqual(t, len(a.samples), 1450)
	last := uint64(len(a.bytes) - 1)
	oldest := max(a.floor, a.samples[0].Index)
	for back := uint64(0); back <= last-oldest; back += 1 + back/50 {
		want := last - back
		at, ok := a.from(kv.SeqNum(2*want+1), time.Now(), 0)
		if !ok { // the one that is known is below the floor
			at.Index = a.floor
		}
		require.LessOrEqual(t, a.bytes[want]-a.bytes[at.Index], a.age(want)/sampleSpan,
			"the place known for entry %d of %d is %d", want, last, at.Index)
		require.LessOrEqual(t, a.since(want), a.age(want)+a.age(want)/sampleSpan)
	}
}

// A copy of the store has the configuration that was the newest one at the number up to which its
// tables hold everything.
func TestPositionsKnowTheNewestConfiguration(t *testing.T) {
	testsize.OneGoroutine(t)
	for before := range 4 {
		s := newPositions()
		index := uint64(0)
		note := func(conf string, changed bool) {
			index++
			s.note(Position{Index: index, Term: 1, Seq: kv.SeqNum(index), Conf: []byte(conf)}, 100, changed)
		}
		note("old", true)
		for range maxSamples - 10 + before {
			note("old", false)
		}
		note("new", true)
		change := index
		for range 4 * maxSamples {
			note("new", false)
		}
		require.LessOrEqual(t, len(s.samples), maxSamples)
		for seq := change; seq <= index; seq++ {
			at, ok := s.from(kv.SeqNum(seq), time.Now(), 0)
			require.True(t, ok)
			require.Equal(t, "new", string(at.Conf), "of a copy up to %d, after a change at %d", seq, change)
		}
	}
}

// Configurations that change without a write take no room for ever.
func TestPositionsOfConfigurationsAreBounded(t *testing.T) {
	testsize.OneGoroutine(t)
	s := newPositions()
	for i := range uint64(10 * maxSamples) {
		s.note(Position{Index: i + 1, Term: 1, Seq: 1, Conf: fmt.Append(nil, i)}, 0, true)
		require.LessOrEqual(t, len(s.samples), maxSamples)
	}
	at, ok := s.from(1, time.Now(), 0)
	require.True(t, ok)
	require.Equal(t, fmt.Sprint(10*maxSamples-1), string(at.Conf))
}
