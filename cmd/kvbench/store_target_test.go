package main

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// serve runs a server on a socket until the test ends, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := service.New(servicetest.New(kv.DefaultLimits), service.Options{}, daemon.Protocols()...)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
		defer cancel()
		assert.NoError(t, s.Shutdown(ctx))
		assert.NoError(t, <-served)
	})
	return "unix:" + socket
}

func TestAServerAnswersRight(t *testing.T) {
	address := serve(t)
	for _, durability := range []string{"memory", "buffered", "sync"} {
		ctx, open := endingAfter(t, 3000)
		code, stdout, stderr := benchUntil(t, ctx, open, "run", "--addr", address, "--durability", durability, "--threads", "8",
			"--keys", "1000", "--preload", "500", "--mix", "BALANCED", "--find-rate", "0.9", "--duration", "1h",
			"--check-deletes", "--reuse")
		require.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stdout, "BALANCED on the server at unix:")
		assert.Contains(t, stdout, "durability "+durability)
		assert.Contains(t, stdout, "all answers right")
		assert.NotContains(t, stdout, "data  ", "a client cannot know what the server stores")
	}
}

// A benchmark writes, so a store that holds keys is refused unless it is asked for.
func TestAStoreThatHoldsKeysIsRefused(t *testing.T) {
	for _, target := range [][]string{{"--addr", serve(t)}, {"--data", t.TempDir(), "--partitions", "2"}} {
		run := func(command string) (int, string) {
			code, _, stderr := bench(t, openTarget, append(strings.Fields(command), target...)...)
			return code, stderr
		}
		const fill = "ycsb --records 50 --operations 10 --threads 1 --workload C"
		code, said := run(fill)
		require.Equal(t, exitOK, code, "a new store: %s", said)
		for _, command := range []string{"run", fill, "txn", "txn --read-beside", "snapshots"} {
			code, said = run(command)
			assert.Equal(t, exitError, code, command)
			assert.Contains(t, said, "the store of "+target[1]+" is not empty")
			assert.Contains(t, said, "--reuse")
		}
		code, said = run(fill + " --reuse")
		assert.Equal(t, exitOK, code, said)
	}
}

func TestAServerThatIsNotThereIsAnError(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), []string{"run", "--addr", "unix:nobody.sock", "--keys", "100", "--duration", "1h"},
		&stdout, &stderr, openTarget)
	assert.Equal(t, exitError, code)
	assert.Contains(t, stderr.String(), "whether the store is empty")
	assert.Contains(t, stderr.String(), "server unavailable")
}
