package embed_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func value(t testing.TB, db kvd.Reader, key string) string {
	t.Helper()
	v, err := db.Get(t.Context(), []byte(key))
	require.NoError(t, err)
	return string(v)
}

func TestWhatWasWrittenIsThereAfterAReopening(t *testing.T) {
	dir := t.TempDir() + "/data"
	for i := range 3 {
		db, err := embed.Open(dir)
		require.NoError(t, err)
		require.NoError(t, db.Put(t.Context(), fmt.Appendf(nil, "k%d", i), []byte{byte('0' + i)}))
		for j := range i + 1 {
			assert.Equal(t, fmt.Sprint(j), value(t, db, fmt.Sprintf("k%d", j)))
		}
		require.NoError(t, db.Close())
		require.NoError(t, db.Close(), "twice is harmless")
	}
}

func TestOpenSaysWhyItCannot(t *testing.T) {
	dir := t.TempDir()
	db, err := embed.Open(dir, embed.WithPartitions(2))
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	for name, c := range map[string]struct {
		dir  string
		opts []embed.Option
		want error
		text string
	}{
		"in use":       {dir, nil, kvd.ErrUnavailable, "in use"},
		"no store":     {t.TempDir(), []embed.Option{embed.WithExisting()}, kvd.ErrUnavailable, "there is no store"},
		"nothing read": {t.TempDir(), []embed.Option{embed.WithReadOnly()}, kvd.ErrUnavailable, "there is no store"},
		"memory":       {dir, []embed.Option{embed.WithMemory(1)}, kvd.ErrInvalid, "memory of 1 bytes"},
		"durability":   {dir, []embed.Option{embed.WithDurability(9)}, kvd.ErrInvalid, "durability 9"},
		"partitions":   {dir, []embed.Option{embed.WithPartitions(-1)}, kvd.ErrInvalid, "-1 partitions"},
		"logger":       {dir, []embed.Option{embed.WithLogger(nil)}, kvd.ErrInvalid, "logger"},
		"nil option":   {dir, []embed.Option{embed.WithPartitions(2), nil}, kvd.ErrInvalid, "option 2 is nil"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := embed.Open(c.dir, c.opts...)
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// An empty name, for example of a variable that is not set, is not the working directory.
func TestAnEmptyNameIsNoDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("main.go", nil, 0o600))
	for name, opts := range map[string][]embed.Option{"created": nil, "read": {embed.WithReadOnly()}, "existing": {embed.WithExisting()}} {
		_, err := embed.Open("", opts...)
		assert.ErrorIs(t, err, kvd.ErrInvalid, name)
	}
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, files, 1)
}

// The files of something else are left alone, and a new store may be where nothing is.
func TestAStoreIsCreatedOnlyWhereNothingElseIs(t *testing.T) {
	top := t.TempDir()
	photos := filepath.Join(top, "photos")
	require.NoError(t, os.Mkdir(photos, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(photos, "cat.jpg"), nil, 0o600))
	for name, opts := range map[string][]embed.Option{
		"created": nil, "read": {embed.WithReadOnly()}, "existing": {embed.WithExisting()},
	} {
		_, err := embed.Open(photos, opts...)
		if opts == nil {
			require.ErrorIs(t, err, kvd.ErrInvalid, name)
			require.ErrorContains(t, err, "cat.jpg", name)
		} else {
			require.ErrorIs(t, err, kvd.ErrUnavailable, name)
		}
		files, err := os.ReadDir(photos)
		require.NoError(t, err)
		require.Len(t, files, 1, name)
	}
	disk := filepath.Join(top, "disk")
	require.NoError(t, os.MkdirAll(filepath.Join(disk, "lost+found"), 0o700))
	for _, dir := range []string{disk, filepath.Join(top, "not", "there")} {
		_, err := embed.Open(dir, embed.WithExisting())
		require.ErrorIs(t, err, kvd.ErrUnavailable, dir)
		db, err := embed.Open(dir)
		require.NoError(t, err)
		require.NoError(t, db.Put(t.Context(), []byte("k"), []byte("v")))
		require.NoError(t, db.Close())
		require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600))
		db, err = embed.Open(dir)
		require.NoError(t, err, "there is a store, whatever is beside it")
		assert.Equal(t, "v", value(t, db, "k"))
		require.NoError(t, db.Close())
	}
}

func TestAReadOnlyStoreIsOnlyRead(t *testing.T) {
	dir := t.TempDir()
	db, err := embed.Open(dir, embed.WithPartitions(2))
	require.NoError(t, err)
	require.NoError(t, db.Put(t.Context(), []byte("k"), []byte("v")))
	require.NoError(t, db.Close())
	for range 2 { // both at a time
		db, err := embed.Open(dir, embed.WithReadOnly())
		require.NoError(t, err)
		defer func() { assert.NoError(t, db.Close()) }()
		assert.Equal(t, "v", value(t, db, "k"))
		require.ErrorIs(t, db.Put(t.Context(), []byte("k"), nil), kvd.ErrReadOnly)
	}
	_, err = embed.Open(dir, embed.WithPartitions(3), embed.WithReadOnly())
	require.ErrorIs(t, err, kvd.ErrInvalid)
}

func TestTimingsAreThoseOfTheStore(t *testing.T) {
	db, err := embed.Memory()
	require.NoError(t, err)
	defer func() { assert.NoError(t, db.Close()) }()
	check := func(timings *kvd.Timings) {
		t.Helper()
		assert.Positive(t, timings.Total())
		assert.Equal(t, 1, timings.Attempts)
		assert.Equal(t, timings.Inbox+timings.Batch+timings.Engine+timings.LogWrite+timings.Sync, timings.Total())
		*timings = kvd.Timings{}
	}
	var timings kvd.Timings
	timed := kvd.Timed(&timings)
	k := []byte("k")
	require.NoError(t, db.Put(t.Context(), k, bytes.Repeat(k, 1000), timed))
	check(&timings)
	require.NoError(t, db.Put(t.Context(), k, nil, timed, kvd.IfPresent()))
	check(&timings)
	_, err = db.Get(t.Context(), k, timed)
	require.NoError(t, err)
	check(&timings)
	_, err = db.GetMany(t.Context(), [][]byte{k}, timed)
	require.NoError(t, err)
	check(&timings)
	_, err = db.Apply(t.Context(), new(kvd.Batch).Delete(k), timed)
	require.NoError(t, err)
	check(&timings)

	_, err = db.SlowRequests(t.Context(), 0)
	require.ErrorIs(t, err, kvd.ErrInvalid)
	require.ErrorIs(t, db.ClearSlowRequests(t.Context()), kvd.ErrInvalid)
	_, _, err = db.SetSetting(t.Context(), "log-level", "debug")
	require.ErrorIs(t, err, kvd.ErrInvalid)
	_, err = db.Cluster(t.Context())
	require.ErrorIs(t, err, kvd.ErrInvalid)
	_, err = db.TransferLeadership(t.Context(), 1)
	require.ErrorIs(t, err, kvd.ErrInvalid)
	_, err = db.AddNode(t.Context(), "127.0.0.1:1", 0)
	require.ErrorIs(t, err, kvd.ErrInvalid)
	require.ErrorIs(t, db.RemoveNode(t.Context(), 1), kvd.ErrInvalid)
	require.ErrorIs(t, db.MoveNode(t.Context(), 1, "127.0.0.1:1"), kvd.ErrInvalid)
}

// A directory is a store, whichever way it is used.
func TestADirectoryIsServedAndEmbeddedInTurns(t *testing.T) {
	dir := t.TempDir() + "/data"
	for i := range 4 {
		key := fmt.Appendf(nil, "k%d", i)
		use := func(db kvd.Store) {
			for j := range i {
				assert.Equal(t, fmt.Sprint(j), value(t, db, fmt.Sprintf("k%d", j)))
			}
			require.NoError(t, db.Put(t.Context(), key, fmt.Append(nil, i), kvd.IfAbsent()))
			require.NoError(t, db.Update(t.Context(), func(tx *kvd.Txn) error { return tx.Put(t.Context(), []byte("last"), key) }))
		}
		if i%2 == 0 {
			db, err := embed.Open(dir)
			require.NoError(t, err)
			use(db)
			require.NoError(t, db.Close())
		} else {
			served(t, dir, use)
		}
	}
}

// served runs kvd serve on a directory, as far as use returns.
func served(t *testing.T, dir string, use func(kvd.Store)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		config := daemon.DefaultConfig()
		config.Data, config.Listen, config.Admin, config.Log = dir, "127.0.0.1:0", "127.0.0.1:0", zap.NewNop()
		ended <- daemon.Run(ctx, config, func(listen, _ net.Addr) { ready <- listen })
	}()
	select {
	case address := <-ready:
		db, err := kvd.Open(address.String(), kvd.WithTimeout(testwait.Left()))
		require.NoError(t, err)
		_, err = embed.Open(dir)
		require.ErrorIs(t, err, kvd.ErrUnavailable)
		require.ErrorContains(t, err, "in use")
		use(db)
		require.NoError(t, db.Close())
	case err := <-ended:
		require.NoError(t, err)
	}
	stop()
	require.NoError(t, <-ended)
}

// What a logger is told has names and numbers, and no data.
func TestALoggerIsTold(t *testing.T) {
	var log bytes.Buffer
	db, err := embed.Memory(embed.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	require.NoError(t, db.Put(t.Context(), []byte("secret"), []byte("secret")))
	require.NoError(t, db.Close())
	assert.Contains(t, log.String(), "store is open")
	assert.Contains(t, log.String(), "partitions=4")
	assert.NotContains(t, log.String(), "secret")
}
