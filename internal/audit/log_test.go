package audit_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func lines(t *testing.T, fsys vfs.FS, name string) (all []audit.Event) {
	t.Helper()
	text, err := vfs.ReadSmall(fsys, name, 1<<30)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var e audit.Event
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		all = append(all, e)
	}
	return all
}

func TestEventsAreAppendedAsLines(t *testing.T) {
	fsys := vfs.NewMem()
	for i := range 2 { // it is opened again
		l, err := audit.Open(fsys, "audit", 1<<20, func(err error) { assert.NoError(t, err) })
		require.NoError(t, err)
		_, err = audit.Open(fsys, "audit", 1<<20, func(error) {})
		require.ErrorIs(t, err, vfs.ErrLocked, "another process would write over its lines")
		l.Add(audit.Event{Kind: audit.SignIn, Identity: "app\n\x00", Peer: "1.2.3.4:5", Method: "Get"})
		l.Add(audit.Event{Kind: audit.Refused, Identity: "eve"})
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		l.Add(audit.Event{Kind: audit.Admin})
		assert.Len(t, lines(t, fsys, "audit"), i+1)
		assert.Len(t, lines(t, fsys, "audit.refused"), i+1)
	}
	e := lines(t, fsys, "audit")[0]
	assert.Equal(t, "app\n\x00", e.Identity)
	assert.WithinDuration(t, time.Now(), e.Time, time.Hour)
	assert.Equal(t, "eve", lines(t, fsys, "audit.refused")[0].Identity)
}

// ofEach returns the events other than those that say what was dropped, by address, and the
// numbers that were dropped.
func ofEach(all []audit.Event) (kept map[string]int, dropped map[string]uint64) {
	kept, dropped = map[string]int{}, map[string]uint64{}
	for _, e := range all {
		if e.Kind == "dropped" {
			dropped[e.Peer] += e.Dropped
		} else {
			host, _, _ := net.SplitHostPort(e.Peer)
			kept[host]++
		}
	}
	return kept, dropped
}

// What one address floods the log with is dropped and counted for that address, and keeps
// neither lines of others nor of other kinds out.
func TestAFloodIsDroppedAndCountedByAddress(t *testing.T) {
	for kind, name := range map[string]string{audit.SignIn: "audit", audit.SignInFailed: "audit.refused", audit.Refused: "audit.refused"} {
		synctest.Test(t, func(t *testing.T) {
			fsys := vfs.NewMem()
			l, err := audit.Open(fsys, "audit", 1<<30, func(err error) { assert.NoError(t, err) })
			require.NoError(t, err)
			const flood, most = 10_000, audit.LinesPerSecond / 2
			for i := range flood {
				l.Add(audit.Event{Kind: kind, Peer: fmt.Sprintf("10.0.0.1:%d", i)})
			}
			l.Add(audit.Event{Kind: kind, Peer: "10.0.0.2:1"})
			l.Add(audit.Event{Kind: audit.Admin, Method: "Backup", Peer: "10.0.0.1:1"})
			synctest.Wait()
			kept, dropped := ofEach(lines(t, fsys, name))
			if name == "audit" {
				kept["10.0.0.1"]-- // the call of the administrator
			}
			assert.Equal(t, most, kept["10.0.0.1"], kind)
			assert.Equal(t, 1, kept["10.0.0.2"], kind)
			assert.Empty(t, dropped, "it is said later")
			done := lines(t, fsys, "audit")
			assert.Equal(t, "Backup", done[len(done)-1].Method, kind)
			assert.EqualValues(t, flood-most, l.Dropped(), kind)

			time.Sleep(time.Minute)
			l.Add(audit.Event{Kind: kind, Peer: "10.0.0.3:1"})
			synctest.Wait()
			all := lines(t, fsys, name)
			said := all[len(all)-1]
			assert.Equal(t, "10.0.0.1", said.Peer, "another line has it said")
			assert.EqualValues(t, flood-most, said.Dropped)
			assert.Contains(t, []string{audit.SignIn, audit.Refused}, said.Of)
			require.NoError(t, l.Close())
		})
	}
}

// Addresses of one network of version 6 are one, and there is a bound to how many have a limit
// of their own, and to all together.
func TestAFloodFromManyAddressesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		l, err := audit.Open(fsys, "audit", 1<<30, func(err error) { assert.NoError(t, err) })
		require.NoError(t, err)
		const flood = 10_000
		for i := range flood {
			l.Add(audit.Event{Kind: audit.Refused, Peer: fmt.Sprintf("[2001:db8::%x]:1", i)})
		}
		for i := range flood {
			l.Add(audit.Event{Kind: audit.Refused, Peer: fmt.Sprintf("10.1.%d.%d:1", i>>8, i&0xff)})
		}
		require.NoError(t, l.Close())
		all := lines(t, fsys, "audit.refused")
		kept, dropped := ofEach(all)
		ofV6 := 0
		for host, n := range kept {
			if strings.Contains(host, ":") {
				ofV6 += n
			}
		}
		assert.Equal(t, audit.LinesPerSecond/2, ofV6)
		assert.EqualValues(t, flood-audit.LinesPerSecond/2, dropped["2001:db8::/64"])
		assert.LessOrEqual(t, len(all), audit.LinesPerSecond+1025)
		assert.EqualValues(t, 2*flood-audit.LinesPerSecond, l.Dropped())
		assert.NotZero(t, dropped[""], "what has no limit of its own counts together")
	})
}

// Refusals fill and rotate a file of their own.
func TestRefusalsDisplaceNoOtherLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		l, err := audit.Open(fsys, "audit", 1000, func(err error) { assert.NoError(t, err) })
		require.NoError(t, err)
		l.Add(audit.Event{Kind: audit.Admin, Method: "Backup"})
		l.Add(audit.Event{Kind: audit.SignIn, Identity: "ops"})
		for range 100 {
			l.Add(audit.Event{Kind: audit.Refused})
			l.Add(audit.Event{Kind: audit.SignInFailed})
			time.Sleep(time.Second)
		}
		require.NoError(t, l.Close())
		names, err := fsys.List(".")
		require.NoError(t, err)
		assert.Equal(t, []string{"audit", "audit.lock", "audit.refused", "audit.refused.1"}, names)
		assert.Len(t, lines(t, fsys, "audit"), 2)
		assert.Zero(t, l.Dropped())
	})
}

func TestAFullFileIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		const most = 2000
		l, err := audit.Open(fsys, "audit", most, func(err error) { assert.NoError(t, err) })
		require.NoError(t, err)
		for i := range 100 {
			l.Add(audit.Event{Kind: audit.Admin, Method: fmt.Sprint(i)})
			time.Sleep(time.Second)
		}
		require.NoError(t, l.Close())
		names, err := fsys.List(".")
		require.NoError(t, err)
		assert.Equal(t, []string{"audit", "audit.1", "audit.lock", "audit.refused"}, names)
		next := 100
		for _, name := range []string{"audit", "audit.1"} {
			all := lines(t, fsys, name)
			text, err := vfs.ReadSmall(fsys, name, most)
			require.NoError(t, err)
			assert.LessOrEqual(t, len(text), most)
			for i := len(all) - 1; i >= 0; i-- {
				next--
				assert.Equal(t, fmt.Sprint(next), all[i].Method, "none is lost between the files")
			}
		}
	})
}

// The file that follows a full one has its permissions, or is private and says so.
func TestAFileThatFollowsKeepsThePermissions(t *testing.T) {
	for _, fault := range []error{nil, syscall.EPERM} {
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			require.NoError(t, vfs.WriteAtomic(mem, "audit", nil))
			f, err := mem.Open("audit")
			require.NoError(t, err)
			require.NoError(t, f.SetAccess(groupReads{}))
			require.NoError(t, f.Close())
			fsys := faultfs.Wrap(mem, nil)
			if fault != nil {
				fsys.SetInjector(faultfs.FailAt(0, fault, true, faultfs.OnKind(faultfs.SetAccess)))
			}
			var reports []error
			l, err := audit.Open(fsys, "audit", 2000, func(err error) { reports = append(reports, err) })
			require.NoError(t, err)
			for i := range 60 {
				l.Add(audit.Event{Kind: audit.Admin, Method: fmt.Sprint(i)})
				time.Sleep(time.Second)
			}
			require.NoError(t, l.Close())
			info, err := mem.Stat("audit")
			require.NoError(t, err)
			_, err = mem.Stat("audit.1")
			require.NoError(t, err)
			if fault == nil {
				assert.Equal(t, os.FileMode(0o640), info.Mode())
				assert.Empty(t, reports)
			} else {
				assert.Equal(t, os.FileMode(0o600), info.Mode())
				require.NotEmpty(t, reports)
				require.ErrorIs(t, reports[0], fault)
			}
			assert.Zero(t, l.Dropped())
		})
	}
}

// groupReads describes a file that its group may read.
type groupReads struct{ os.FileInfo }

func (groupReads) Mode() os.FileMode { return 0o640 }

func TestAFailingFileIsReportedOnceAndUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := vfs.NewMem()
		fsys := faultfs.Wrap(memory, nil)
		reports := make(chan error, 10)
		l, err := audit.Open(fsys, "audit", 1<<20, func(err error) { reports <- err })
		require.NoError(t, err)
		fsys.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if op.Kind == faultfs.Write {
				return faultfs.Fault{Err: syscall.ENOSPC}
			}
			return faultfs.Fault{}
		}))
		for range 3 {
			l.Add(audit.Event{Kind: audit.SignIn})
		}
		synctest.Wait()
		require.Len(t, reports, 1)
		require.ErrorIs(t, <-reports, syscall.ENOSPC)
		assert.EqualValues(t, 3, l.Dropped())
		fsys.SetInjector(nil)
		l.Add(audit.Event{Kind: audit.Admin})
		require.NoError(t, l.Close())
		all := lines(t, memory, "audit")
		require.Len(t, all, 2)
		assert.EqualValues(t, 3, all[0].Dropped)
		assert.Equal(t, audit.Admin, all[1].Kind)
		assert.Empty(t, reports)
	})
}

// Of a line that the disk took in part nothing is left.
func TestALineIsWholeOrAbsent(t *testing.T) {
	memory := vfs.NewMem()
	fsys := faultfs.Wrap(memory, nil)
	l, err := audit.Open(fsys, "audit", 1<<20, func(error) {})
	require.NoError(t, err)
	l.Add(audit.Event{Kind: audit.SignIn, Identity: "first"})
	testwait.Until(t, func() bool { return len(lines(t, memory, "audit")) == 1 })
	fsys.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Write {
			return faultfs.Fault{Err: syscall.ENOSPC, Short: 100}
		}
		return faultfs.Fault{}
	}))
	l.Add(audit.Event{Kind: audit.SignIn, Identity: strings.Repeat("x", 1000)})
	testwait.Until(t, func() bool { return l.Dropped() == 1 })
	assert.Len(t, lines(t, memory, "audit"), 1, "and it is JSON")
	fsys.SetInjector(nil)
	l.Add(audit.Event{Kind: audit.SignIn, Identity: "last"})
	require.NoError(t, l.Close())
	all := lines(t, memory, "audit")
	require.Len(t, all, 3)
	assert.EqualValues(t, 1, all[1].Dropped)
	assert.Equal(t, "last", all[2].Identity)
}
