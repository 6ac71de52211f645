package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/workload"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// plantWrongValues gives every key the value of the key before it, and the first one that of
// the last.
func plantWrongValues(ctx context.Context, store kvd.Store) error {
	var first, before []byte
	wrong := new(kvd.Batch)
	planted := 0
	for item, err := range store.Scan(ctx, kvd.All()) {
		if err != nil {
			return err
		}
		if before == nil {
			first = item.Key
		} else {
			wrong.Put(item.Key, before)
		}
		if wrong.Len() == 1000 {
			if _, err := store.Apply(ctx, wrong); err != nil {
				return err
			}
			wrong.Reset()
		}
		planted++
		before = item.Value
	}
	if planted < 100 {
		return fmt.Errorf("the store has only %d keys", planted)
	}
	_, err := store.Apply(ctx, wrong.Put(first, before))
	return err
}

// kvbench runs a command line in a process of its own: the binary of the tests, which is
// kvbench if the environment says so.
func kvbench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	var out, errs bytes.Buffer
	c := exec.CommandContext(testwait.Context(t), program, args...)
	c.Env, c.Dir = append(os.Environ(), childVariable+"=1"), t.TempDir()
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		require.NotNil(t, c.ProcessState, err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// A run on a store of earlier runs checks what it reads there, not only what it has put
// itself. Without --verify nothing is checked.
func TestAWrongValueInTheStoreFailsTheRunAndNamesTheKey(t *testing.T) {
	plant := map[string]func(t *testing.T, where string) kvd.Store{
		"--data": func(t *testing.T, where string) kvd.Store {
			store, err := embed.Open(where)
			require.NoError(t, err)
			return store
		},
		"--addr": func(t *testing.T, where string) kvd.Store {
			client, err := kvd.Open(where, kvd.WithTimeout(testwait.Left()))
			require.NoError(t, err)
			return client
		},
	}
	for flag, where := range map[string]string{"--data": t.TempDir(), "--addr": serve(t)} {
		args := []string{"run", flag, where, "--threads", "1", "--keys", "500", "--value-size", "64", "--mix", "GET_HEAVY", "--find-rate", "1"}
		code, _, stderr := kvbench(t, append(args, "--preload", "500", "--duration", "50ms")...)
		require.Equal(t, exitOK, code, stderr)
		code, stdout, stderr := kvbench(t, append(args, "--reuse", "--duration", "100ms")...)
		require.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stdout, "all answers right")

		store := plant[flag](t, where)
		require.NoError(t, plantWrongValues(t.Context(), store))
		require.NoError(t, store.Close())
		code, stdout, stderr = kvbench(t, append(args, "--reuse", "--duration", "1h")...)
		assert.Equal(t, exitError, code, flag)
		assert.Regexp(t, `wrong answer: key 0{13}\d\d\d has the value of key 0{13}\d\d\d`, stderr)
		assert.Contains(t, stdout, "do not use these figures")

		code, stdout, stderr = kvbench(t, append(args, "--reuse", "--duration", "100ms", "--verify=false")...)
		assert.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stdout, "answers not checked.")
	}
}

// TestAWrongRecordOfAServerEndsYCSB: another client of the server plants wrong values once the
// records are loaded.
func TestAWrongRecordOfAServerEndsYCSB(t *testing.T) {
	const records = 200
	address := serve(t)
	client, err := kvd.Open(address, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	planted := make(chan error, 1)
	go func() {
		for ctx := testwait.Context(t); ; {
			count := 0
			for _, err := range client.Scan(ctx, kvd.All(), kvd.KeysOnly()) {
				if err != nil {
					planted <- err
					return
				}
				count++
			}
			if count == records {
				planted <- plantWrongValues(ctx, client)
				return
			}
		}
	}()
	code, stdout, stderr := kvbench(t, "ycsb", "--addr", address, "--workload", "C", "--records", "200", "--field-bytes", "10", "--threads", "2", "--duration", "1h")
	require.NoError(t, <-planted)
	assert.Equal(t, exitError, code)
	assert.Regexp(t, `wrong answer: record \d+ \(key user\d{20}\) has the value of record \d+ \(key user\d{20}\)`, stderr)
	assert.Contains(t, stdout, "do not use these figures")
}

// planting is a store in which wrong values are planted once it is loaded.
type planting struct{ *engineTarget }

func (p *planting) settle(ctx context.Context) error {
	if err := plantWrongValues(ctx, p.store); err != nil {
		return err
	}
	return p.engineTarget.settle(ctx)
}

// TestAWrongValueAmongLoadedKeysEndsAnExperiment: of those that load a store and then read it.
func TestAWrongValueAmongLoadedKeysEndsAnExperiment(t *testing.T) {
	whenLoaded := func(o *targetOptions) (workload.Target, targetInfo, error) {
		target, info, err := openTarget(o)
		if e, ok := target.(*engineTarget); ok {
			return &planting{e}, info, err
		}
		return target, info, err
	}
	whenStopped := func(o *targetOptions) (workload.Target, targetInfo, error) {
		store, err := embed.Open(o.data)
		if err != nil {
			return nil, targetInfo{}, err
		}
		if err := errors.Join(plantWrongValues(t.Context(), store), store.Close()); err != nil {
			return nil, targetInfo{}, err
		}
		return openTarget(o)
	}
	table := []string{"microbatch", "--runs", "1", "--sizes", "4", "--rows", "10000", "--reads", "1000", "--readers", "2", "--report", "m"}
	for name, test := range map[string]struct {
		open opener
		args []string
	}{
		"reads":              {whenLoaded, tinyReads},
		"microbatch, disk":   {whenLoaded, append(table, "--stores", "disk", "--read-latency", "1us")},
		"microbatch, server": {whenLoaded, append(table, "--stores", "server")},
		"restart":            {whenStopped, tinyRestart},
	} {
		code, _, stderr := bench(t, test.open, test.args...)
		assert.Equal(t, exitError, code, name)
		assert.Regexp(t, `wrong answer: key 0+\d* has the value of key \d+`, stderr, name)
		left, err := filepath.Glob("kvbench-data-*")
		require.NoError(t, err)
		assert.Empty(t, left, name)
	}
}
