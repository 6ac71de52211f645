package vfs

import "time"

// SlowReads returns fsys as a slower device: a read of a file that was opened by Open takes
// latency longer, and at most depth such reads are under way at a time; 0 means any number.
// In a benchmark it stands for a remote disk or a database. Files that are open for writing
// are not slowed.
func SlowReads(fsys FS, latency time.Duration, depth int) FS {
	s := &slowReads{FS: fsys, latency: latency}
	if depth > 0 {
		s.turns = make(chan struct{}, depth)
	}
	return s
}

type slowReads struct {
	FS
	latency time.Duration
	turns   chan struct{} // holds one for each read under way; nil: any number
}

func (s *slowReads) Open(name string) (File, error) {
	f, err := s.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &slowFile{f, s}, nil
}

type slowFile struct {
	File
	device *slowReads
}

func (f *slowFile) ReadAt(p []byte, off int64) (int, error) {
	if f.device.turns != nil {
		f.device.turns <- struct{}{}
		defer func() { <-f.device.turns }()
	}
	time.Sleep(f.device.latency)
	return f.File.ReadAt(p, off)
}
