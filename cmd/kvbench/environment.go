package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/vfs"
)

// readEnvironment describes the machine and, unless dataDir is empty, the disk of the data.
func readEnvironment(dataDir string) (loadgen.Environment, error) {
	e := loadgen.ReadEnvironment(dataDir)
	if e.Commit == "" || strings.HasSuffix(e.Commit, "+dirty") {
		var err error
		if e.ProgramSum, err = programSum(); err != nil {
			return e, fmt.Errorf("checksum of this program: %w", err)
		}
	}
	if dataDir == "" {
		return e, nil
	}
	took, err := measureSync(vfs.OS, dataDir)
	e.SyncNanos = took.Nanoseconds()
	return e, err
}

// programSum returns a checksum of the running program.
var programSum = sync.OnceValues(func() (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", err
	}
	program, err := os.Open(name)
	if err != nil {
		return "", err
	}
	sum := xxhash.New()
	_, err = io.Copy(sum, program)
	return strconv.FormatUint(sum.Sum64(), 16), errors.Join(err, program.Close())
})

// syncProbes is the number of syncs of which measureSync returns the median: odd, and few, as a
// busy disk may take a tenth of a second for each.
const syncProbes = 5

// measureSync returns how long a disk takes to sync a page that was written: the median of
// a few. Its file in dir is removed.
func measureSync(fs vfs.FS, dir string) (median time.Duration, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("measure how long a sync takes: %w", err)
		}
	}()
	name := filepath.Join(dir, "kvbench-sync-probe")
	f, err := fs.Create(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), fs.Remove(name)) }()
	page := make([]byte, 4096)
	var took []time.Duration
	for i := range syncProbes {
		if _, err := f.WriteAt(page, int64(i*len(page))); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
