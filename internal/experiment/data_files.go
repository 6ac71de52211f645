package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sort"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/vfs"
)

// evictEvery is how often files are dropped from the page cache while they are read:
// guessed, so that few reads find a page that another one has left there.
const evictEvery = 50 * time.Millisecond

// leastFile leaves out files that hold little, such as manifests.
const leastFile = 4096

// dataFiles are the files of a store, open for reading.
type dataFiles struct {
	files  []vfs.File
	ends   []int64 // of the files, if they were one after the other
	bytes  int64
	reads  vfs.ReadCounts
	counts func() (calls, bytes uint64)
}

// openFiles opens the tables and value files below dir. The log has none of what reads ask
// for.
func openFiles(dir string) (*dataFiles, error) {
	d := new(dataFiles)
	d.counts = func() (calls, bytes uint64) { return d.reads.Calls(), d.reads.Bytes() }
	if dir == "" {
		return d, nil
	}
	if err := d.open(vfs.CountReads(vfs.OS, &d.reads), dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open the files of the store: %w", err), d.close())
	}
	return d, nil
}

func (d *dataFiles) open(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		name = path.Join(dir, name)
		info, err := fsys.Stat(name)
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err := d.open(fsys, name); err != nil {
				return err
			}
			continue
		}
		if info.Size() < leastFile || !isData(name) {
			continue
		}
		f, err := fsys.Open(name)
		if err != nil {
			return err
		}
		d.bytes += info.Size()
		d.files, d.ends = append(d.files, f), append(d.ends, d.bytes)
	}
	return nil
}

func (d *dataFiles) close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// evict drops the files from the page cache; false if this system cannot.
func (d *dataFiles) evict() (bool, error) {
	for _, f := range d.files {
		if ok, err := isSupported(vfs.Evict(f.Name())); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// evicting drops the files from the page cache, now and again and again until stop is
// called; stop returns the first error.
func (d *dataFiles) evicting() (stop func() error, ok bool, err error) {
	if ok, err = d.evict(); err != nil || !ok {
		return func() error { return nil }, false, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	var failed error
	done.Go(func() {
		ticks := time.NewTicker(evictEvery)
		defer ticks.Stop()
		for failed == nil {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				_, failed = d.evict()
			}
		}
	})
	return func() error { cancel(); done.Wait(); return failed }, true, nil
}

// reading returns a run of workers that each read so many bytes at random places of the
// files, again and again.
func (d *dataFiles) reading(workers, bytes int, seed uint64) *loadgen.Run {
	r := &loadgen.Run{Clock: loadgen.NewClock(), Operations: rawOperations}
	for w := range workers {
		rng, buf, tally := rand.New(rand.NewPCG(seed, uint64(w))), make([]byte, bytes), loadgen.NewTally(len(rawOperations), 0)
		step := func(_ context.Context, intended int64) error {
			f, off, n := d.draw(rng, bytes)
			began := r.Clock.Now()
			if _, err := f.ReadAt(buf[:n], off); err != nil {
				return err
			}
			tally.Record(0, began, r.Clock.Now(), intended)
			return nil
		}
		r.Workers = append(r.Workers, loadgen.Worker{Step: step, Tally: tally})
	}
	return r
}

// draw returns a place, each byte as likely as any other, from which so many bytes can be
// read, or fewer if its file has fewer.
func (d *dataFiles) draw(rng *rand.Rand, bytes int) (f vfs.File, off int64, n int) {
	at := rng.Int64N(d.bytes)
	i := sort.Search(len(d.ends), func(i int) bool { return d.ends[i] > at })
	size := d.ends[i]
	if i > 0 {
		size -= d.ends[i-1]
	}
	n = int(min(int64(bytes), size))
	off = min(at-(d.ends[i]-size), size-int64(n))
	return d.files[i], off, n
}

// fileSizes returns the bytes of the tables and value files below dir, and those of the log.
func fileSizes(dir string) (data, log int64, err error) {
	names, err := vfs.OS.List(dir)
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		name = path.Join(dir, name)
		info, err := vfs.OS.Stat(name)
		if err != nil {
			return 0, 0, err
		}
		switch {
		case info.IsDir():
			d, l, err := fileSizes(name)
			if err != nil {
				return 0, 0, err
			}
			data, log = data+d, log+l
		case isData(name):
			data += info.Size()
		case path.Base(dir) == logDir:
			log += info.Size()
		}
	}
	return data, log, nil
}

// logDir is the directory of the log in that of a store.
const logDir = "wal"

// isData reports whether a file is a table or a value file.
func isData(name string) bool {
	kind := path.Ext(name)
	return kind == ".sst" || kind == ".val"
}

// evictAll drops all files below dir from the page cache, after it has synced them: pages
// that the disk does not have stay. It returns false if this system cannot.
func evictAll(dir string) (bool, error) {
	names, err := vfs.OS.List(dir)
	if err != nil {
		return false, err
	}
	for _, name := range names {
		name = path.Join(dir, name)
		info, err := vfs.OS.Stat(name)
		if err != nil {
			return false, err
		}
		evict := evictFile
		if info.IsDir() {
			evict = evictAll
		}
		if ok, err := evict(name); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func evictFile(name string) (bool, error) {
	f, err := vfs.OS.Open(name)
	if err != nil {
		return false, err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return false, err
	}
	return isSupported(vfs.Evict(name))
}

// isSupported tells an error from a system that cannot do it.
func isSupported(err error) (bool, error) {
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}
