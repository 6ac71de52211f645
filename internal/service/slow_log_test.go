package service

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func slowWith(key string) SlowRequest {
	r := SlowRequest{}
	r.Load.Add([]byte(key), 7)
	return r
}

// listed returns the ids and keys of a slow log.
func listed(l *slowLog, limit int) (ids []uint64, keys []string) {
	newest, _ := l.list(limit)
	for _, r := range newest {
		ids, keys = append(ids, r.ID), append(keys, string(r.Key))
	}
	return ids, keys
}

func TestTheSlowLogKeepsTheNewest(t *testing.T) {
	l := newSlowLog(&Options{SlowTime: time.Second, SlowEntries: 3})
	ids, _ := listed(l, 10)
	assert.Empty(t, ids)
	for n := range 8 {
		l.add(slowWith(fmt.Sprint(n + 1)))
		ids, keys := listed(l, 10)
		require.Len(t, ids, min(n+1, 3))
		for i, id := range ids {
			assert.EqualValues(t, n+1-i, id, "the newest first")
			assert.Equal(t, fmt.Sprint(n+1-i), keys[i])
		}
	}
	ids, _ = listed(l, 2)
	assert.Equal(t, []uint64{8, 7}, ids)
	assert.EqualValues(t, 8, l.count())

	l.clear()
	ids, _ = listed(l, 10)
	assert.Empty(t, ids)
	l.add(slowWith("9"))
	ids, keys := listed(l, 10)
	assert.Equal(t, []uint64{9}, ids, "ids go on")
	assert.Equal(t, []string{"9"}, keys)
}

func TestTheSlowLogTakesWhatReachesTheThreshold(t *testing.T) {
	l := newSlowLog(&Options{SlowTime: time.Second, SlowEntries: 3})
	assert.False(t, l.takes(time.Second-1))
	assert.True(t, l.takes(time.Second))
	assert.False(t, newSlowLog(&Options{SlowEntries: 3}).takes(time.Hour), "it is off")
}

// Of a key there is the beginning, or nothing, and its length; what is listed is a
// copy.
func TestTheSlowLogCutsKeys(t *testing.T) {
	long := strings.Repeat("0123456789", 5)
	l := newSlowLog(&Options{SlowTime: 1, SlowEntries: 1})
	l.add(slowWith(long))
	newest, _ := l.list(1)
	assert.Equal(t, long[:slowKeyBytes], string(newest[0].Key))
	assert.Equal(t, 50, newest[0].KeyBytes)
	assert.Equal(t, 57, newest[0].Bytes)
	assert.Nil(t, newest[0].firstKey, "the request's memory is not kept")
	l.add(slowWith("short"))
	assert.Equal(t, long[:slowKeyBytes], string(newest[0].Key))

	l = newSlowLog(&Options{SlowTime: 1, SlowEntries: 1, SlowHideKeys: true})
	l.add(slowWith(long))
	newest, _ = l.list(1)
	assert.Empty(t, newest[0].Key)
	assert.Equal(t, 50, newest[0].KeyBytes)
}

func TestTheSlowLogIsSafeForConcurrentUse(t *testing.T) {
	l := newSlowLog(&Options{SlowTime: 1, SlowEntries: 4})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 500 {
				l.add(slowWith(strings.Repeat(fmt.Sprint(i), 1+i)))
			}
		})
		all.Go(func() {
			for range 200 {
				newest, total := l.list(10)
				for n, r := range newest {
					assert.EqualValues(t, total-uint64(n), r.ID)
					assert.Equal(t, strings.Repeat(fmt.Sprint(r.KeyBytes-1), r.KeyBytes), string(r.Key))
				}
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 4000, l.count())
}
