package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// plantWrongValues gives every key the value of the key before it.
func plantWrongValues(t *testing.T, store kvd.Store) {
	t.Helper()
	var before []byte
	planted := 0
	for item, err := range store.Scan(t.Context(), kvd.All()) {
		require.NoError(t, err)
		if before != nil {
			require.NoError(t, store.Put(t.Context(), item.Key, before))
			planted++
		}
		before = item.Value
	}
	require.Greater(t, planted, 100)
	require.NoError(t, store.Close())
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
			client, err := kvd.Open(where)
			require.NoError(t, err)
			return client
		},
	}
	for flag, where := range map[string]string{"--data": t.TempDir(), "--addr": serve(t)} {
		args := []string{"run", flag, where, "--threads", "1", "--keys", "500", "--value-size", "64", "--mix", "GET_HEAVY", "--find-rate", "1"}
		code, _, stderr := bench(t, openTarget, append(args, "--preload", "500", "--duration", "50ms")...)
		require.Equal(t, exitOK, code, stderr)
		code, stdout, stderr := bench(t, openTarget, append(args, "--reuse", "--duration", "300ms")...)
		require.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stdout, "all answers right")

		plantWrongValues(t, plant[flag](t, where))
		code, stdout, stderr = bench(t, openTarget, append(args, "--reuse", "--duration", "1h")...)
		assert.Equal(t, exitError, code, flag)
		assert.Regexp(t, `wrong answer: key 0{13}\d\d\d has the value of key 0{13}\d\d\d`, stderr)
		assert.Contains(t, stdout, "do not use these figures")

		code, stdout, stderr = bench(t, openTarget, append(args, "--reuse", "--duration", "300ms", "--verify=false")...)
		assert.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stdout, "answers not checked.")
	}
}
