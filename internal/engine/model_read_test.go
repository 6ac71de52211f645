package engine

import (
	"context"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// heldSnapshot is a snapshot, what it holds, and when its lease ends.
type heldSnapshot struct {
	kv.Snapshot
	holds    view
	until    time.Time
	released bool
}

func (s *heldSnapshot) live() bool { return !s.released && time.Now().Before(s.until) }

// live reports whether a lease on a version lasts.
func (m *machine) live(version kv.SeqNum) bool {
	return slices.ContainsFunc(m.snapshots, func(s *heldSnapshot) bool { return s.Version == version && s.live() })
}

// requireKept judges the error of a read at a version: none while a lease on it
// lasts, which it did or did not when the read began.
func (m *machine) requireKept(t require.TestingT, version kv.SeqNum, lived bool, err error) {
	switch {
	case m.live(version):
		require.NoError(t, err, "version %d is under lease", version)
	case !lived:
		require.ErrorIs(t, err, kv.ErrVersionGone, "version %d is not under lease", version)
	case err != nil:
		require.ErrorIs(t, err, kv.ErrVersionGone)
	}
}

// saw notes a version that the store has told.
func (m *machine) saw(t require.TestingT, version kv.SeqNum) {
	require.GreaterOrEqual(t, version, m.seen, "it holds what was acknowledged before")
	m.seen = version
}

var modelLease = rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second, time.Hour})

// grantedOf returns what a lease asked for should be granted.
func grantedOf(asked time.Duration) time.Duration {
	if asked == 0 {
		return defaultLease
	}
	return min(asked, time.Minute)
}

func (m *machine) BeginSnapshot(t *rapid.T) {
	if len(m.snapshots) > 4 {
		t.Skip("enough of them")
	}
	asked := modelLease.Draw(t, "lease")
	s, err := m.e.BeginSnapshot(context.Background(), asked)
	require.NoError(t, err)
	require.Equal(t, grantedOf(asked), s.Lease)
	m.saw(t, s.Version)
	m.snapshots = append(m.snapshots, &heldSnapshot{Snapshot: s, holds: m.now(), until: time.Now().Add(s.Lease)})
}

// drawSnapshot draws one of the snapshots, the ended ones among them.
func (m *machine) drawSnapshot(t *rapid.T) *heldSnapshot {
	if len(m.snapshots) == 0 {
		t.Skip("there is none")
	}
	return m.snapshots[rapid.IntRange(0, len(m.snapshots)-1).Draw(t, "snapshot")]
}

func (m *machine) KeepSnapshot(t *rapid.T) {
	s, asked := m.drawSnapshot(t), modelLease.Draw(t, "lease")
	granted, err := m.e.KeepSnapshot(s.ID, asked)
	if !s.live() {
		require.ErrorIs(t, err, kv.ErrVersionGone)
		return
	}
	require.NoError(t, err)
	require.LessOrEqual(t, granted, grantedOf(asked))
	s.until = time.Now().Add(granted)
}

func (m *machine) ReleaseSnapshot(t *rapid.T) {
	s := m.drawSnapshot(t)
	m.e.ReleaseSnapshot(s.ID)
	s.released = true
	if rapid.Bool().Draw(t, "forget") {
		m.snapshots = slices.DeleteFunc(m.snapshots, func(other *heldSnapshot) bool { return other == s })
	}
	m.forgetLeases()
}

func (m *machine) Get(t *rapid.T) {
	key := modelKey.Draw(t, "key")
	got, err := m.e.Get(context.Background(), []byte(key))
	want, ok := m.now()[key]
	if !ok {
		require.ErrorIs(t, err, kv.ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, itemOf(&got))
}

func (m *machine) MultiGet(t *rapid.T) {
	var reads []*kv.Lookup
	for range rapid.IntRange(1, 20).Draw(t, "reads") {
		reads = append(reads, &kv.Lookup{Key: []byte(modelKey.Draw(t, "key"))})
	}
	holds := m.now()
	switch rapid.IntRange(0, 3).Draw(t, "at") {
	case 0:
		require.NoError(t, m.e.Lookup(context.Background(), reads))
	case 3:
		left, err := m.e.LookupCached(slices.Clone(reads))
		require.NoError(t, err)
		for _, r := range left {
			require.Contains(t, reads, r)
		}
		require.NoError(t, m.e.Lookup(context.Background(), left))
	case 1:
		at, err := m.e.LookupAt(context.Background(), reads, 0)
		require.NoError(t, err)
		m.saw(t, at)
	case 2:
		s := m.drawSnapshot(t)
		lived := m.live(s.Version)
		at, err := m.e.LookupAt(context.Background(), reads, s.Version)
		if m.requireKept(t, s.Version, lived, err); err != nil {
			return
		}
		require.Equal(t, s.Version, at)
		holds = s.holds
	}
	for _, r := range reads {
		holds.requireAnswer(t, r)
	}
}

func drawScan(t *rapid.T) (kv.Range, kv.ScanOptions) {
	return modelRange.Draw(t, "range"), kv.ScanOptions{
		Limit:    rapid.Uint64Range(0, 5).Draw(t, "limit"),
		KeysOnly: rapid.Bool().Draw(t, "keys only"),
		Reverse:  rapid.Bool().Draw(t, "reverse"),
	}
}

// openScan is a scan that goes on while other things happen.
type openScan struct {
	*Scanner
	want     []string // not given yet
	keysOnly bool
	at       kv.SeqNum // of a snapshot; 0: it has its own
	gone     bool      // there was a time without a lease on its version
}

func (m *machine) openScan(t *rapid.T) *openScan {
	r, o := drawScan(t)
	holds := m.now()
	if rapid.Bool().Draw(t, "at a snapshot") {
		s := m.drawSnapshot(t)
		o.At, holds = s.Version, s.holds
	}
	lived := o.At == 0 || m.live(o.At)
	scanner, err := m.e.Scan(context.Background(), r, o)
	if !lived {
		require.ErrorIs(t, err, kv.ErrVersionGone)
		t.Skip("no lease")
	}
	require.NoError(t, err)
	if o.At == 0 {
		m.saw(t, scanner.Version())
	} else {
		require.Equal(t, o.At, scanner.Version())
	}
	return &openScan{Scanner: scanner, want: holds.lines(r, o), keysOnly: o.KeysOnly, at: o.At}
}

// advance reads on for n items, and reports whether there may be more.
func (m *machine) advance(t *rapid.T, s *openScan, n int) bool {
	for range n {
		if s.Next() {
			require.NotEmpty(t, s.want, "one too many: %q", s.Item().Key)
			require.Equal(t, s.want[0], itemOf(s.Item()).line(string(s.Item().Key), s.keysOnly))
			s.want = s.want[1:]
			continue
		}
		err := s.Err()
		if err != nil && (s.gone || s.at != 0 && !m.live(s.at)) {
			require.ErrorIs(t, err, kv.ErrVersionGone)
		} else {
			require.NoError(t, err)
			require.Empty(t, s.want)
		}
		return false
	}
	return true
}

func (m *machine) Scan(t *rapid.T) {
	s := m.openScan(t)
	require.False(t, m.advance(t, s, 2*len(modelKeys)))
	require.NoError(t, s.Close())
}

func (m *machine) OpenScan(t *rapid.T) {
	if len(m.scans) > 2 {
		t.Skip("enough of them")
	}
	m.scans = append(m.scans, m.openScan(t))
}

func (m *machine) AdvanceScan(t *rapid.T) {
	if len(m.scans) == 0 {
		t.Skip("there is none")
	}
	i := rapid.IntRange(0, len(m.scans)-1).Draw(t, "scan")
	s := m.scans[i]
	if !m.advance(t, s, rapid.IntRange(1, 10).Draw(t, "items")) || rapid.IntRange(0, 9).Draw(t, "close") == 0 {
		require.NoError(t, s.Close())
		m.scans = slices.Delete(m.scans, i, i+1)
	}
}

// forgetLeases notes which open scans have lost their version.
func (m *machine) forgetLeases() {
	for _, s := range m.scans {
		s.gone = s.gone || s.at != 0 && !m.live(s.at)
	}
}
