package command

import (
	"bytes"
	"errors"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

func TestErrorsAreExitCodes(t *testing.T) {
	for want, c := range map[int]struct {
		args []string
		err  error
	}{
		ExitOK:    {nil, nil},
		ExitError: {nil, errors.New("a store gave a wrong answer")},
		ExitUsage: {[]string{"--unknown"}, nil},
	} {
		root := &cobra.Command{Use: "compare", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return c.err }}
		root.SetArgs(append([]string{}, c.args...))
		var stderr bytes.Buffer
		assert.Equal(t, want, Run(root, &stderr))
		assert.Equal(t, want != ExitOK, bytes.HasPrefix(stderr.Bytes(), []byte("compare: ")), stderr.String())
	}
	root := &cobra.Command{Use: "compare", Args: NoArgs, RunE: func(*cobra.Command, []string) error { return nil }}
	root.SetArgs([]string{"surplus"})
	assert.Equal(t, ExitUsage, Run(root, &bytes.Buffer{}))
}
