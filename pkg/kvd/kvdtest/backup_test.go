package kvdtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/pace/pacetest"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
)

// A server reads its files for a backup at the rate that the client asks for, or at 16 MiB per
// second: to verify them and to send them, also if the client was held up. The clock is that of
// the bubble.
func TestABackupIsReadAtTheRateOfTheClient(t *testing.T) {
	for rate, want := range map[int64]int64{4 << 20: 4 << 20, 0: 24 << 20, -1: 24 << 20} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { backupAtARate(t, backupValues(), rate, want) })
		})
	}
}

// A backup may take longer than a connection lasts, which takes no new calls after two hours.
func TestABackupOutlivesTheAgeOfItsConnection(t *testing.T) {
	values := backupValues()
	rate := int64(values) * 48 // so that it takes as long, however many they are
	synctest.Test(t, func(t *testing.T) {
		require.Greater(t, backupAtARate(t, values, rate, rate), 3*time.Hour)
	})
}

// backupValues is how many values a backup has.
func backupValues() int {
	if testsize.Reduced() {
		return 16
	}
	return 64
}

// backupAtARate makes a backup of so many values and returns how long it took.
func backupAtARate(t *testing.T, values int, rate, want int64) time.Duration {
	t.Helper()
	const size, segment, largestRead = 256 << 10, 64 << 10, 256 << 10
	m := &pacetest.Meter{FS: vfs.NewMem()}
	store, err := engine.Open("data", engine.Options{FS: m, Partitions: 1, MemtableBytes: 8 << 20, CacheBytes: 4 << 20, SegmentBytes: segment, LowDiskBytes: 1})
	require.NoError(t, err)
	server := service.New(daemon.Store(store), service.Options{}, daemon.Protocols()...)
	pipe := memlisten.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(pipe) }()
	db, err := kvd.Open("kvdtest", kvd.WithTimeout(time.Hour), kvd.WithDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return pipe.DialContext(ctx)
	}))
	require.NoError(t, err)
	defer func() {
		assert.NoError(t, db.Close())
		assert.NoError(t, server.Shutdown(context.Background()))
		assert.NoError(t, <-served)
		assert.NoError(t, store.Close())
	}()
	for i := range values {
		require.NoError(t, db.Put(t.Context(), fmt.Appendf(nil, "k%d", i), bytes.Repeat([]byte{byte(i)}, size)))
	}
	require.NoError(t, store.CompactAll(t.Context()))
	time.Sleep(5 * time.Second) // the log is given up
	m.Reset()
	b, err := db.Backup(t.Context(), rate)
	require.NoError(t, err)
	defer func() { assert.NoError(t, b.Close()) }()
	sent := int64(0)
	for i, f := range b.Info().Files {
		if i%2 == 0 {
			time.Sleep(5 * time.Second)
		}
		_, content, err := b.Fetch(f.Name)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, content)
		require.NoError(t, err)
		sent += n
	}
	require.Greater(t, sent, int64(values)*size)
	read, took := m.Total()
	require.GreaterOrEqual(t, read, 2*sent-largestRead)
	const newest = 3*size + 4<<10 // of the segments of the log, which is read at once, its last frame twice
	for _, within := range []time.Duration{50 * time.Millisecond, time.Second} {
		bound := int64(float64(want)*(within.Seconds()+0.04)) + largestRead + newest
		require.LessOrEqual(t, m.Most(within), bound, "within %v, of %d bytes in %v", within, read, took)
	}
	return took
}
