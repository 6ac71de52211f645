package lint

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlantedBugsApply: every planted bug must still apply, so that
// scripts/planted-bugs.sh keeps proving the same. A change to code that a patch touches
// must refresh the patch.
func TestPlantedBugsApply(t *testing.T) {
	for _, tool := range []string{"bash", "git"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: whether the planted bugs apply is not tested, there is no %s", tool)
		}
	}
	check := exec.CommandContext(t.Context(), "../../scripts/planted-bugs.sh", "--check")
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "patches apply")
}
