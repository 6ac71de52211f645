package livefile_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/livefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBad = errors.New("it is bad")

// pair is two files that can be used if they are equal.
type pair struct {
	fs *vfs.Mem
	*livefile.Watcher

	mu   sync.Mutex
	last string
	all  []string
}

// used returns what was used last.
func (p *pair) used() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// reports returns what was reported.
func (p *pair) reports() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

func open(t *testing.T) *pair {
	p := &pair{fs: vfs.NewMem()}
	p.write(t, "a", "1")
	p.write(t, "b", "1")
	var err error
	p.Watcher, err = livefile.Open(livefile.Files{
		FS: p.fs, Names: []string{"a", "b"},
		Use: func(contents [][]byte) error {
			if string(contents[0]) != string(contents[1]) {
				return errBad
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.last = string(contents[0])
			return nil
		},
		Report: func(err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if err == nil {
				p.all = append(p.all, "new")
				return
			}
			p.all = append(p.all, err.Error())
		},
	})
	require.NoError(t, err)
	require.Equal(t, "1", p.used())
	return p
}

func (p *pair) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, vfs.WriteAtomic(p.fs, name, []byte(text)))
}

// run polls until the test ends.
func (p *pair) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// polls lets n polls pass.
func polls(n int) {
	time.Sleep(time.Duration(n) * livefile.PollEvery)
	synctest.Wait()
}

func TestNewContentsAreUsedWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t)
		p.run(t)
		polls(3)
		assert.Empty(t, p.reports())
		p.write(t, "a", "2")
		p.write(t, "b", "2")
		polls(1)
		assert.Equal(t, "2", p.used())
		assert.Equal(t, []string{"new"}, p.reports())
		assert.LessOrEqual(t, livefile.PollEvery, 5*time.Second)
	})
}

func TestBadContentsAreReportedOnceAndTheOldStayInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t)
		p.run(t)
		p.write(t, "a", "2")
		polls(1)
		assert.Empty(t, p.reports(), "the other file may follow")
		polls(5)
		assert.Equal(t, []string{errBad.Error()}, p.reports())
		assert.Equal(t, "1", p.used())
		assert.EqualValues(t, 1, p.Failures())
		assert.True(t, p.Failing())
		p.write(t, "b", "2")
		polls(1)
		assert.Equal(t, []string{errBad.Error(), "new"}, p.reports())
		assert.Equal(t, "2", p.used())
		assert.False(t, p.Failing())
		p.write(t, "b", "3")
		polls(2)
		assert.EqualValues(t, 2, p.Failures(), "it is bad again, and reported again")
	})
}

// Two files are replaced one after the other, with a poll in between.
func TestAReplacementThatIsUnderWayIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t)
		p.run(t)
		p.write(t, "a", "2")
		polls(1)
		p.write(t, "b", "2")
		polls(1)
		assert.Equal(t, []string{"new"}, p.reports())
		assert.Zero(t, p.Failures())
		assert.False(t, p.Failing())
	})
}

func TestAMissingFileIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t)
		p.run(t)
		require.NoError(t, p.fs.Remove("b"))
		polls(4)
		require.Len(t, p.reports(), 1)
		assert.Contains(t, p.reports()[0], "read b: ")
		assert.True(t, p.Failing())
		p.write(t, "b", "1")
		polls(1)
		assert.Len(t, p.reports(), 1, "what is in use is there again")
		assert.False(t, p.Failing())
		require.NoError(t, p.fs.Remove("b"))
		polls(2)
		assert.Len(t, p.reports(), 2)
	})
}

func TestReloadLooksAtOnceAndAlwaysTellsWhatIsWrong(t *testing.T) {
	p := open(t)
	p.Reload()
	assert.Empty(t, p.reports())
	p.write(t, "a", "2")
	p.Reload()
	p.Reload()
	assert.Equal(t, []string{errBad.Error(), errBad.Error()}, p.reports())
	p.write(t, "b", "2")
	p.Reload()
	assert.Equal(t, "2", p.used())
}

func TestOpenRefusesWhatCannotBeUsed(t *testing.T) {
	fs := vfs.NewMem()
	files := livefile.Files{FS: fs, Names: []string{"a"}, Use: func([][]byte) error { return errBad }}
	_, err := livefile.Open(files)
	require.ErrorContains(t, err, "read a: ")
	require.NoError(t, vfs.WriteAtomic(fs, "a", nil))
	_, err = livefile.Open(files)
	require.ErrorIs(t, err, errBad)
}
