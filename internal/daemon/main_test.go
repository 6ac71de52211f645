package daemon

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(stuckChild) != "" {
		os.Exit(ExitCode(runWithStuckSync(context.Background())))
	}
	goleak.VerifyTestMain(m)
}
