package lint

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxDependencies bounds the modules that have to be trusted and kept up to date.
const maxDependencies = 17

// The README gives a reason for each module that this one requires directly, of which there are few.
func TestEachDependencyHasAReason(t *testing.T) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	var module struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal(out, &module))
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)\n## Dependencies\n.*`).Find(readme)
	direct := 0
	for _, r := range module.Require {
		if !r.Indirect {
			direct++
			assert.Contains(t, string(table), r.Path)
		}
	}
	assert.LessOrEqual(t, direct, maxDependencies)
	assert.Greater(t, direct, 5)
}
