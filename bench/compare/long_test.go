package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALongRunIsHeldAlone(t *testing.T) {
	c := newLongCommand()
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs([]string{"--only", "endurance", "--seconds", "2", "--keys", "1000", "--dir", t.TempDir()})
	require.NoError(t, c.ExecuteContext(t.Context()), stderr.String())
	assert.Contains(t, stdout.String(), enduranceCell)
	assert.Regexp(t, `slowest / median second, 32 threads .* >= 0\.5 `, stdout.String())
	assert.NotContains(t, stdout.String(), longPutHeavy)
}

func TestALongRunThatMakesNoSenseIsRefused(t *testing.T) {
	for _, args := range [][]string{{"--only", "sideways"}, {"--seconds", "-1"}, {"--engines", "oracle"}, {"--keys", "0"}} {
		c := newLongCommand()
		c.SetArgs(args)
		c.SilenceErrors, c.SilenceUsage = true, true
		err := c.ExecuteContext(t.Context())
		var failure *failure
		require.Error(t, err, "%v", args)
		assert.NotErrorAs(t, err, &failure, "%v", args)
	}
}
