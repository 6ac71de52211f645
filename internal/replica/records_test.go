package replica

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// readRecords returns the records after an index.
func (m *member) readRecords(t *testing.T, after uint64) (records []string, err error) {
	err = m.loop.Records(t.Context(), after, func(record []byte) (bool, error) {
		records = append(records, string(record))
		return true, nil
	})
	return records, err
}

// The records that were applied are read back, after any index, until they are given up or the log ends.
func TestLoopReadsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 1)
		before := m.loop.Status().Applied.Index
		none, err := m.readRecords(t, before)
		require.NoError(t, err)
		require.Empty(t, none)
		var want []string
		for i := range 30 {
			want = append(want, fmt.Sprint("record ", i))
			_, err := m.loop.Propose(m.tenureNow(), []byte(want[i]))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Equal(t, want, m.applied())
		for skip := range want {
			got, err := m.readRecords(t, before+uint64(skip))
			require.NoError(t, err)
			require.Equal(t, want[skip:], got)
		}

		// fn ends the reading, without an error or with its own.
		read, enough := 0, errors.New("enough")
		require.NoError(t, m.loop.Records(t.Context(), before, func([]byte) (bool, error) { read++; return read < 3, nil }))
		require.Equal(t, 3, read)
		require.Equal(t, enough, m.loop.Records(t.Context(), before, func([]byte) (bool, error) { return true, enough }))

		// What is applied during the call is not part of it, so the call ends.
		got := 0
		require.NoError(t, m.loop.Records(t.Context(), before, func([]byte) (bool, error) {
			got++
			_, err := m.loop.Propose(m.tenureNow(), []byte("meanwhile"))
			synctest.Wait()
			return true, err
		}))
		require.GreaterOrEqual(t, got, len(want))
		require.Less(t, got, 2*len(want))

		// What was given up is not there any more.
		free := m.loop.Status().Applied.Index - 1
		m.loop.Compact(free, 0)
		synctest.Wait()
		_, err = m.readRecords(t, before)
		require.ErrorIs(t, err, kv.ErrVersionGone)
		last, err := m.readRecords(t, free)
		require.NoError(t, err)
		require.Equal(t, []string{"meanwhile"}, last)
		stop(t, group)
		_, err = m.readRecords(t, free)
		require.ErrorIs(t, err, kv.ErrClosed)
	})
}

// A read is fresh for as long as is asked, from when it began, and not before the first one or after the
// end of the loop.
func TestLoopIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 3)
		follower := group[m.loop.core.config.ID%3]
		require.False(t, follower.loop.Fresh(time.Hour))
		begun := time.Now()
		require.NoError(t, follower.loop.Read(t.Context()))
		require.True(t, follower.loop.Fresh(time.Since(begun)))
		time.Sleep(time.Second)
		require.True(t, follower.loop.Fresh(time.Since(begun)))
		require.False(t, follower.loop.Fresh(time.Since(begun)-1))
		stop(t, group)
		require.False(t, follower.loop.Fresh(time.Hour))
	})
}

// Followers that are told that the process of the leader has ended elect another one before its silence
// would tell.
func TestLoopMissesALeaderThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader := startLoops(t, 3)
		id := leader.loop.core.config.ID
		leader.loop.Stop()
		begun := time.Now()
		for _, m := range group {
			m.loop.Gone(id)
		}
		next := group[id%3]
		for next.loop.Status().Leader == id || next.loop.Status().Leader == 0 {
			time.Sleep(TickInterval)
			synctest.Wait()
			require.Less(t, time.Since(begun), electionTicks*TickInterval)
		}
		for _, m := range group {
			m.loop.Stop()
			require.NoError(t, m.log.Close())
		}
	})
}

// A follower that has got a checkpoint begins its log there, and ends; one that has the entries does not.
func TestLoopInstalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 3)
		follower := group[m.loop.core.config.ID%3]
		status := follower.loop.Status()
		begun, err := follower.loop.Install(t.Context(), status.Applied)
		require.NoError(t, err)
		require.False(t, begun, "it has that")
		at := Position{Index: 99, Term: status.Term, Conf: status.Applied.Conf}
		begun, err = follower.loop.Install(t.Context(), at)
		require.NoError(t, err)
		require.True(t, begun)
		<-follower.loop.Done()
		require.ErrorIs(t, follower.loop.Err(), ErrInstall)
		last, err := follower.log.Group(simGroup).LastIndex()
		require.NoError(t, err)
		require.Equal(t, at.Index, last)
		_, err = follower.loop.Install(t.Context(), at)
		require.ErrorIs(t, err, ErrInstall)
		follower.loop.Sent(1, true) // nothing is to be told any more

		// On another one the disk fails: what is there is not known, and the loop ends.
		other := group[6-m.loop.core.config.ID-follower.loop.core.config.ID-1]
		other.fs.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Sync)))
		_, err = other.loop.Install(t.Context(), at)
		require.ErrorIs(t, err, syscall.EIO)
		<-other.loop.Done()
		require.ErrorIs(t, other.loop.Err(), kv.ErrFailed)
		for _, m := range group {
			m.loop.Stop()
			_ = m.log.Close() // of some the disk has failed
		}
	})
}

// What an entry holds.
func TestContents(t *testing.T) {
	c, err := ContentsOf(entry(7, 3, pb.EntryNormal, encodeEntry(2, []byte("record"))))
	require.NoError(t, err)
	require.Equal(t, Contents{Term: 2, Record: []byte("record")}, c)
	c, err = ContentsOf(entry(7, 3, pb.EntryNormal, nil))
	require.NoError(t, err)
	require.Equal(t, Contents{}, c)
	_, err = ContentsOf(entry(7, 3, pb.EntryNormal, []byte("later")))
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	c, err = ContentsOf(entry(7, 3, pb.EntryConfChangeV2, nil))
	require.NoError(t, err)
	require.Empty(t, c.Change.GetChanges())
	_, err = ContentsOf(entry(7, 3, pb.EntryConfChangeV2, []byte("\xff")))
	require.ErrorIs(t, err, kv.ErrCorrupt)
}
