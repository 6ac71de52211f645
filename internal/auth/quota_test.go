package auth_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/vfs"
)

// limited returns the usage of an identity with a quota, and a function that changes the quota.
func limited(t *testing.T, q auth.Quota) (*auth.Usage, func(auth.Quota) *auth.Usage) {
	t.Helper()
	fsys := vfs.NewMem()
	token, id, hash := auth.NewToken()
	entry := auth.Entry{Identity: auth.Identity{Name: "app", TokenID: id, Quota: q}, Hash: hash}
	write(t, fsys, entry)
	a, err := auth.Open(fsys, "tokens", func(err error) { require.NoError(t, err) })
	require.NoError(t, err)
	s := a.SignIn(token)
	usage := func() *auth.Usage {
		i, err := s.Identity(time.Now())
		require.NoError(t, err)
		return i.Usage()
	}
	return usage(), func(q auth.Quota) *auth.Usage {
		entry.Quota = q
		write(t, fsys, entry)
		a.Reload()
		return usage()
	}
}

func TestARateAllowsItsBurstAndThenItself(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	for _, c := range []struct {
		rate    string
		burst   time.Duration
		atOnce  int
		another time.Duration // after which one more is allowed
	}{
		{"1000/s", 0, 1000, time.Millisecond},
		{"1000/s", 100 * time.Millisecond, 100, time.Millisecond},
		{"1000/s", 5 * time.Second, 5000, time.Millisecond},
		{"60/m", 0, 1, time.Second},
		{"60/m", time.Minute, 60, time.Second},
		{"1/h", 0, 1, time.Hour},
	} {
		rate, err := auth.ParseRate(c.rate)
		require.NoError(t, err)
		u, _ := limited(t, auth.Quota{Requests: rate, Burst: c.burst})
		for i := range c.atOnce {
			require.Nil(t, u.Take(start, 1, 1<<30), "%s: %d", c.rate, i)
		}
		for _, now := range []time.Time{start, start.Add(c.another / 2)} {
			over := u.Take(now, 1, 0)
			require.NotNil(t, over, c.rate)
			assert.Equal(t, start.Add(c.another).Sub(now), over.RetryAfter, c.rate)
			assert.Equal(t, `"app" is over its quota: requests `+c.rate, over.Error())
		}
		require.Nil(t, u.Take(start.Add(c.another), 1, 0))
		require.NotNil(t, u.Take(start.Add(c.another), 1, 0))
		later := start.Add(100 * time.Hour)
		for range c.atOnce {
			require.Nil(t, u.Take(later, 1, 0), "nothing is saved up beyond the burst")
		}
		require.NotNil(t, u.Take(later, 1, 0))
		assert.EqualValues(t, 2*c.atOnce+1, u.Counts().Requests)
	}
}

// What is larger than the bucket passes when that is full, and is paid for afterwards; so is the
// part of answers whose size was not known. What is owed is forgotten after an hour.
func TestWhatIsLargerThanTheBucketIsPaidForAfterwards(t *testing.T) {
	rate, err := auth.ParseByteRate("1KiB/s")
	require.NoError(t, err)
	now := time.Unix(1_000_000, 0)
	u, _ := limited(t, auth.Quota{Bytes: rate})
	require.Nil(t, u.Take(now, 1, 4<<10))
	over := u.Take(now, 1, 1<<10)
	require.NotNil(t, over)
	assert.Equal(t, auth.Bytes, over.Resource)
	assert.Equal(t, "bytes 1KiB/s", over.Limit)
	assert.Equal(t, 4*time.Second, over.RetryAfter)
	now = now.Add(over.RetryAfter)
	require.Nil(t, u.Take(now, 1, 1<<10))
	u.Settle(now, 0, 2<<10)
	assert.Equal(t, 2*time.Second, u.Take(now, 1, 0).RetryAfter, "until what is owed is paid")
	u.Settle(now, 0, 1<<40)
	assert.Equal(t, time.Hour, u.Take(now, 1, 0).RetryAfter)
	assert.EqualValues(t, 5<<10+2<<10+1<<40, u.Counts().Bytes)
}

// While bytes are owed no answer is taken, and no request. What was taken for an answer that is
// not sent is given back.
func TestNothingIsTakenWhileBytesAreOwed(t *testing.T) {
	rate, err := auth.ParseByteRate("1KiB/s")
	require.NoError(t, err)
	now := time.Unix(1_000_000, 0)
	u, _ := limited(t, auth.Quota{Bytes: rate})
	require.Nil(t, u.TakeAnswer(now, 1<<10, 0))
	require.Nil(t, u.TakeAnswer(now, 3<<10, 0), "what is left is nothing, and nothing is owed")
	over := u.TakeAnswer(now, 1, 0)
	require.NotNil(t, over)
	assert.Equal(t, auth.Bytes, over.Resource)
	assert.Equal(t, 3*time.Second, over.RetryAfter)
	assert.Equal(t, 3*time.Second, u.Take(now, 1, 0).RetryAfter)
	assert.Zero(t, u.Counts().Bytes, "they count when they are sent")

	u.Settle(now, 3<<10, 1<<10)
	assert.Equal(t, time.Second, u.TakeAnswer(now, 1, 0).RetryAfter)
	assert.EqualValues(t, 1<<10, u.Counts().Bytes)
	require.NotNil(t, u.TakeAnswer(now, 1, 1<<10-1))
	require.Nil(t, u.TakeAnswer(now, 0, 1<<10), "it owes all of that itself")
	now = now.Add(time.Second)
	require.Nil(t, u.TakeAnswer(now, 1<<10, 0))
	u.Settle(now, 1<<10, 0)
	require.Nil(t, u.TakeAnswer(now, 0, 0))
	u.Settle(now, 1<<20, 0)
	require.Nil(t, u.Take(now, 1, 1<<10))
	assert.Equal(t, time.Second, u.Take(now, 1, 1<<10).RetryAfter, "no more is given back than a full bucket has")
}

func TestWhatIsHeldIsBounded(t *testing.T) {
	u, change := limited(t, auth.Quota{Snapshots: 2, Connections: 1})
	require.Nil(t, u.Hold(auth.Snapshots))
	require.Nil(t, u.Hold(auth.Connections))
	require.Nil(t, u.Hold(auth.Snapshots))
	over := u.Hold(auth.Snapshots)
	require.NotNil(t, over)
	assert.Equal(t, "snapshots 2", over.Limit)
	assert.Positive(t, over.RetryAfter)
	assert.Equal(t, "connections 1", u.Hold(auth.Connections).Limit)
	u.Release(auth.Snapshots)
	require.Nil(t, u.Hold(auth.Snapshots))

	// A new quota counts at once, and what is held stays held.
	same := change(auth.Quota{Snapshots: 3})
	assert.Same(t, u, same)
	require.Nil(t, u.Hold(auth.Snapshots))
	require.NotNil(t, u.Hold(auth.Snapshots))
	require.Nil(t, u.Hold(auth.Connections), "there is no bound any more")
	assert.Nil(t, change(auth.Quota{}), "an identity without a quota is not counted")
	assert.Nil(t, (*auth.Identity)(nil).Usage())
}

func TestAChangedRateCountsAtOnce(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	u, change := limited(t, auth.Quota{Requests: auth.Rate{Count: 1, Per: time.Hour}})
	require.Nil(t, u.Take(now, 1, 0))
	require.NotNil(t, u.Take(now, 1, 0))
	u = change(auth.Quota{Requests: auth.Rate{Count: 2, Per: time.Hour}, Burst: time.Hour})
	require.Nil(t, u.Take(now, 2, 0))
	require.NotNil(t, u.Take(now, 1, 0))
}

// Identities of one name use its quota together, and have the same.
func TestANameHasOneQuota(t *testing.T) {
	fsys := vfs.NewMem()
	token, id, hash := auth.NewToken()
	quota := auth.Quota{Requests: auth.Rate{Count: 1, Per: time.Hour}}
	entries := []auth.Entry{
		{Identity: auth.Identity{Name: "app", TokenID: id, Quota: quota}, Hash: hash},
		{Identity: auth.Identity{Name: "app", Certificate: "kvd:app", Quota: quota}},
	}
	write(t, fsys, entries...)
	a, err := auth.Open(fsys, "tokens", func(error) {})
	require.NoError(t, err)
	i, err := a.SignIn(token).Identity(time.Now())
	require.NoError(t, err)
	require.Nil(t, i.Usage().Take(time.Now(), 1, 0))
	assert.Len(t, a.Usages(), 1)

	entries[1].Quota = auth.Quota{}
	text, err := auth.Encode(entries)
	require.NoError(t, err)
	_, err = auth.Decode(text)
	require.ErrorContains(t, err, `identities 0 and 1: both are called "app", with different quotas (requests 1/h; none)`)
}

// The counters of a file with many names are bounded in number.
func TestUsagesAreBoundedInNumber(t *testing.T) {
	const names = 1000
	fsys := vfs.NewMem()
	var entries []auth.Entry
	for i := range names {
		entries = append(entries, auth.Entry{Identity: auth.Identity{Name: fmt.Sprintf("app%04d", i), Certificate: fmt.Sprintf("kvd:%d", i), Quota: auth.Quota{Snapshots: 1}}})
	}
	write(t, fsys, entries...)
	a, err := auth.Open(fsys, "tokens", func(error) {})
	require.NoError(t, err)
	all := a.Usages()
	require.Len(t, all, 201)
	assert.Equal(t, "app0000", all[0].Name)
	assert.Equal(t, "app0199", all[199].Name)
	assert.Empty(t, all[200].Name, "the others, together")
}

func goldenQuotas(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "v2", "tokens.json"))
	require.NoError(t, err)
	return text
}

func TestFilesOfVersion2HaveQuotasAndMonitors(t *testing.T) {
	entries, err := auth.Decode(goldenQuotas(t))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.Equal(t, auth.Quota{
		Requests: auth.Rate{Count: 1000, Per: time.Second}, Bytes: auth.Rate{Count: 10 << 20, Per: time.Second},
		Burst: 2 * time.Second, Snapshots: 10, Connections: 20,
	}, entries[0].Quota)
	assert.Equal(t, "requests 1000/s, bytes 10MiB/s, snapshots 10, connections 20, burst 2s", entries[0].Quota.String())
	assert.Equal(t, auth.Quota{Requests: auth.Rate{Count: 60, Per: time.Minute}}, entries[1].Quota)
	assert.True(t, entries[1].Monitor)
	assert.False(t, entries[0].Monitor)
	text, err := auth.Encode(entries)
	require.NoError(t, err)
	assert.Equal(t, string(goldenQuotas(t)), string(text))
}

func TestWrongQuotasAreRefusedWithTheReason(t *testing.T) {
	file := func(version int, quota string) string {
		return fmt.Sprintf(`{"version": %d, "identities": [{"name": "x", "certificate": "kvd:x", "quota": %s}]}`, version, quota)
	}
	for text, says := range map[string]string{
		file(1, `{}`): "a quota or monitor needs a file of version 2",
		`{"version": 1, "identities": [{"name": "x", "certificate": "kvd:x", "monitor": true}]}`: "needs a file of version 2",
		file(3, `{}`):                                            "use a newer one",
		file(2, `{"max_request": "1/s"}`):                        "unknown field",
		file(2, `{"max_requests": "1000"}`):                      `max_requests: "1000" is no rate, such as`,
		file(2, `{"max_requests": "0/s"}`):                       "is no rate",
		file(2, `{"max_requests": "-1/s"}`):                      "is no rate",
		file(2, `{"max_requests": "1.5/s"}`):                     "is no rate",
		file(2, `{"max_requests": "1/d"}`):                       "is no rate",
		file(2, `{"max_requests": "1/s/s"}`):                     "is no rate",
		file(2, `{"max_requests": "9223372036854775807/s"}`):     "is no rate",
		file(2, `{"max_bytes": "10MB/s"}`):                       "is no rate of bytes",
		file(2, `{"max_bytes": "10MiB"}`):                        "is no rate of bytes",
		file(2, `{"burst": "1s"}`):                               "a burst needs a rate",
		file(2, `{"max_requests": "1/s", "burst": "1"}`):         "is no duration",
		file(2, `{"max_requests": "1/s", "burst": "-1s"}`):       "want a time up to 24h",
		file(2, `{"max_requests": "1/s", "burst": "25h"}`):       "want a time up to 24h",
		file(2, `{"max_snapshots": -1}`):                         "want 1 or more",
		file(2, `{"max_connections": -1}`):                       "want 1 or more",
		file(2, `{"max_snapshots": 99999999999999999999999}`):    "cannot unmarshal",
		file(2, `{"max_requests": 1000}`):                        "cannot unmarshal",
		file(2, `{"max_requests": "99999999999999999999999/s"}`): "is no rate",
	} {
		_, err := auth.Decode([]byte(text))
		require.ErrorContains(t, err, says, text)
	}
}
