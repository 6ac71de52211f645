package kvdtest_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// greet is what somebody might want to test.
func greet(t testing.TB, db *kvd.Client, name string) string {
	value, err := db.Get(t.Context(), []byte("greeting"))
	require.NoError(t, err)
	return fmt.Sprintf("%s, %s!", value, name)
}

func TestARealServerInOneLine(t *testing.T) {
	db := kvdtest.New(t)
	require.NoError(t, db.Put(t.Context(), []byte("greeting"), []byte("Hello")))
	assert.Equal(t, "Hello, Ada!", greet(t, db, "Ada"))
	_, err := db.Get(t.Context(), []byte("nobody"))
	require.ErrorIs(t, err, kvd.ErrNotFound)
}

func TestEachTestHasAStoreOfItsOwn(t *testing.T) {
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			db := kvdtest.New(t, kvd.WithDurability(kvd.Memory))
			_, err := db.Get(t.Context(), []byte("key"))
			require.ErrorIs(t, err, kvd.ErrNotFound)
			require.NoError(t, db.Put(t.Context(), []byte("key"), []byte(strconv.Itoa(i))))
			value, err := db.Get(t.Context(), []byte("key"))
			require.NoError(t, err)
			assert.Equal(t, strconv.Itoa(i), string(value))
		})
	}
}

func TestOptionsReachTheClient(t *testing.T) {
	db := kvdtest.New(t, kvd.WithBatching(kvd.Batching{Disabled: true}), kvd.WithTimeout(time.Minute))
	for i := range 100 {
		require.NoError(t, db.Put(t.Context(), fmt.Appendf(nil, "key/%02d", i), []byte("v")))
	}
	count := 0
	for item, err := range db.Scan(t.Context(), kvd.Prefix([]byte("key/"))) {
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("key/%02d", count), string(item.Key))
		count++
	}
	assert.Equal(t, 100, count)
}

// wrongOption is a testing.TB that notes Fatalf instead of ending the test.
type wrongOption struct {
	testing.TB
	fatal string
}

func (w *wrongOption) Fatalf(format string, args ...any) { w.fatal = fmt.Sprintf(format, args...) }

func TestAWrongOptionFailsTheTestAndLeavesNothing(t *testing.T) {
	w := &wrongOption{TB: t}
	kvdtest.New(w, kvd.WithConns(-1))
	assert.Contains(t, w.fatal, "connections")
}
