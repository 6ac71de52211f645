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
	if role := os.Getenv(panicChild); role != "" {
		os.Exit(ExitCode(runWithPanic(context.Background(), role)))
	}
	goleak.VerifyTestMain(m)
}
