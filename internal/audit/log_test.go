package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/audit"
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
		l.Add(audit.Event{Kind: audit.Refused, Identity: "app\n\x00", Peer: "1.2.3.4:5", Method: "Get"})
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		l.Add(audit.Event{Kind: audit.Admin})
		assert.Len(t, lines(t, fsys, "audit"), i+1)
	}
	e := lines(t, fsys, "audit")[0]
	assert.Equal(t, "app\n\x00", e.Identity)
	assert.WithinDuration(t, time.Now(), e.Time, time.Hour)
}

func TestAFloodIsDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.NewMem()
		l, err := audit.Open(fsys, "audit", 1<<30, func(err error) { assert.NoError(t, err) })
		require.NoError(t, err)
		const flood = 10_000
		for range flood {
			l.Add(audit.Event{Kind: audit.SignInFailed})
		}
		time.Sleep(time.Second)
		l.Add(audit.Event{Kind: audit.SignIn})
		require.NoError(t, l.Close())
		all := lines(t, fsys, "audit")
		require.Len(t, all, audit.LinesPerSecond+2)
		said := all[audit.LinesPerSecond]
		assert.Equal(t, "dropped", said.Kind)
		assert.EqualValues(t, flood-audit.LinesPerSecond, said.Dropped)
		assert.EqualValues(t, said.Dropped, l.Dropped())
		assert.Equal(t, audit.SignIn, all[len(all)-1].Kind)
	})
}

// A client that is refused again and again, or signs in again and again, keeps no
// administrative call out of the log.
func TestAFloodHidesNoAdministrativeCall(t *testing.T) {
	for _, kind := range []string{audit.SignIn, audit.SignInFailed, audit.Refused} {
		synctest.Test(t, func(t *testing.T) {
			fsys := vfs.NewMem()
			l, err := audit.Open(fsys, "audit", 1<<30, func(err error) { assert.NoError(t, err) })
			require.NoError(t, err)
			const flood = 2 * audit.LinesPerSecond
			for range flood {
				l.Add(audit.Event{Kind: kind})
			}
			l.Add(audit.Event{Kind: audit.Admin, Method: "Backup"})
			require.NoError(t, l.Close())
			all := lines(t, fsys, "audit")
			last := all[len(all)-1]
			assert.Equal(t, "Backup", last.Method, kind)
			assert.EqualValues(t, flood-audit.LinesPerSecond, l.Dropped(), kind)
		})
	}
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
		assert.Equal(t, []string{"audit", "audit.1"}, names)
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
