package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/testwait"
)

// silence is an input that has some text, and on which nothing more comes.
type silence struct {
	*strings.Reader
	once   sync.Once
	waited chan struct{} // closed when more is read
	ended  chan struct{} // by the test
}

func silenceAfter(t *testing.T, text string) *silence {
	s := &silence{Reader: strings.NewReader(text), waited: make(chan struct{}), ended: make(chan struct{})}
	t.Cleanup(func() { close(s.ended) })
	return s
}

func (s *silence) Read(p []byte) (int, error) {
	if s.Len() > 0 {
		return s.Reader.Read(p)
	}
	s.once.Do(func() { close(s.waited) })
	<-s.ended
	return 0, context.Canceled
}

// requireEnd waits for the end of a command, and returns its exit code.
func requireEnd(t *testing.T, ended <-chan int) int {
	t.Helper()
	select {
	case code := <-ended:
		return code
	case <-time.After(testwait.Left()):
		t.Fatal("the command still waits for its input")
	}
	return 0
}

// The first signal, which ends the context of a command, ends one that waits for its standard input, too.
func TestASignalEndsACommandThatWaitsForItsInput(t *testing.T) {
	for _, args := range [][]string{
		{"import"}, {"txn"}, {"put", "key", "-"}, {"restore", "-", filepath.Join(t.TempDir(), "restored")}, {"backup", "verify", "-"},
	} {
		t.Run(args[0], func(t *testing.T) {
			in := silenceAfter(t, "")
			ctx, signal := context.WithCancel(t.Context())
			a := &app{in: in, out: new(bytes.Buffer), err: new(bytes.Buffer)}
			ended := make(chan int, 1)
			go func() { ended <- a.execute(ctx, args) }()
			<-in.waited
			signal()
			assert.Equal(t, daemon.ExitError, requireEnd(t, ended), a.err)
		})
	}
}

// An import whose write has failed says so at once, whether or not more lines come.
func TestAnImportThatHasFailedWaitsForNoMoreLines(t *testing.T) {
	in := silenceAfter(t, `{"key":"k","value":"v"}`+"\n")
	closed := "unix:" + filepath.Join(t.TempDir(), "none")
	out := new(bytes.Buffer)
	a := &app{in: in, out: new(bytes.Buffer), err: out}
	ended := make(chan int, 1)
	go func() { ended <- a.execute(t.Context(), []string{"import", "--addr", closed}) }()
	assert.Equal(t, exitUnavailable, requireEnd(t, ended), out)
	assert.Contains(t, out.String(), "line 1: ")
}
