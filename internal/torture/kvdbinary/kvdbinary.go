// Package kvdbinary gives a test the kvd that is shipped, as a program to run
// and to kill.
package kvdbinary

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain builds kvd, sets path to the binary, runs the tests and exits with their code,
// or with 1 if they leaked a goroutine. It then removes the binary. A TestMain needs to do
// nothing else.
func VerifyTestMain(m *testing.M, path *string) {
	code, err := run(m, path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M, path *string) (code int, err error) {
	syscall.Umask(0o022) // kvd refuses directories that others may write to
	dir, err := os.MkdirTemp("", "kvd-test-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	*path = filepath.Join(dir, "kvd")
	// go run keeps the binary in the build cache, and go build links it anew for each test binary.
	// It runs "cp BINARY PATH", and BINARY is gone when it ends.
	build := exec.Command("go", "run", "-exec", "cp", "github.com/kvd-db/kvd/cmd/kvd", *path)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build kvd: %w\n%s", err, out)
	}
	if code = m.Run(); code != 0 {
		return code, nil
	}
	return 0, goleak.Find()
}
