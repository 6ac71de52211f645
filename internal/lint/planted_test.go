package lint

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlantedBugsApply: a change to the code that a planted bug patches makes the patch
// anew, so that scripts/planted-bugs.sh still proves what it did before.
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
