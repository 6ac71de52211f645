package compaction

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/valuefile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// defaultValueFileBytes is where a value file is cut. Guessed: twice a table, so that
// files are few, and each is small against a partition with enough garbage to empty it.
const defaultValueFileBytes = 64 << 20

// ValueRule says where a merge stores values.
type ValueRule struct {
	// Threshold: values of at least this many bytes go into value files. Zero: none does.
	Threshold int
	// FileBytes is where a value file is cut. Default 64 MiB.
	FileBytes int64
	// Read returns a separated value, borrowed until the next call. It is called only for
	// values in files of Choice.Rewrite, about in the order of each file.
	Read func(kv.ValuePointer) ([]byte, error)
}

// separator writes values of a merge to value files. A separated value stays where it is,
// unread, unless its file is in Choice.Rewrite.
type separator struct {
	rule    ValueRule
	outputs Outputs
	rewrite map[kv.FileNum]bool

	file    vfs.File // nil between two value files
	id      kv.FileID
	writer  *valuefile.Writer
	created []kv.FileNum // for abort
	result  []kv.ValueFileMeta
	moved   uint64 // bytes of values rewritten

	entry   kv.Entry
	pointer []byte
}

func newSeparator(job *Job) separator {
	s := separator{rule: job.Values, outputs: job.Outputs}
	if s.rule.FileBytes <= 0 {
		s.rule.FileBytes = defaultValueFileBytes
	}
	if len(job.Choice.Rewrite) > 0 {
		s.rewrite = make(map[kv.FileNum]bool, len(job.Choice.Rewrite))
		for _, num := range job.Choice.Rewrite {
			s.rewrite[num] = true
		}
	}
	return s
}

// place returns e as the table stores it. The result is borrowed until the next
// call.
func (s *separator) place(ctx context.Context, e *kv.Entry) (*kv.Entry, error) {
	switch {
	case e.Kind != kv.KindPut:
		return e, nil
	case e.Apart && len(s.rewrite) == 0:
		return e, nil // unread: the table's writer checks the pointer
	case !e.Apart && (s.rule.Threshold <= 0 || len(e.Value) < s.rule.Threshold):
		return e, nil
	}
	value := e.Value
	if e.Apart {
		p, ok := kv.ParseValuePointer(e.Value)
		if !ok {
			return nil, fmt.Errorf("%w: %d bytes are not a value pointer", kv.ErrInvalidArgument, len(e.Value))
		}
		if !s.rewrite[p.File] {
			return e, nil
		}
		var err error
		if value, err = s.rule.Read(p); err != nil {
			return nil, err
		}
		s.moved += uint64(len(value))
	}
	s.entry = *e
	s.entry.Value, s.entry.Apart = value, false
	if s.rule.Threshold > 0 && len(value) >= s.rule.Threshold {
		p, err := s.add(ctx, value)
		if err != nil {
			return nil, err
		}
		s.pointer = p.AppendTo(s.pointer[:0])
		s.entry.Value, s.entry.Apart = s.pointer, true
	}
	return &s.entry, nil
}

// add writes a value.
func (s *separator) add(ctx context.Context, value []byte) (kv.ValuePointer, error) {
	if s.file != nil && s.writer.Size() >= s.rule.FileBytes {
		if err := s.finish(ctx); err != nil {
			return kv.ValuePointer{}, err
		}
	}
	if s.file == nil {
		f, id, err := s.outputs.Create(manifest.FileValues)
		if err != nil {
			return kv.ValuePointer{}, err
		}
		s.file, s.id, s.writer = f, id, valuefile.NewWriter(f, id)
		s.created = append(s.created, id.Num)
	}
	return s.writer.Add(value)
}

// finish completes the current value file, if there is one. It stays in the page
// cache: no other cache has its values yet.
func (s *separator) finish(ctx context.Context) error {
	if s.file == nil {
		return nil
	}
	meta, err := s.writer.Finish()
	if err == nil {
		if err = s.check(ctx, meta); err != nil {
			err = fmt.Errorf("read back a value file just written: %w", err)
		}
	}
	if err == nil {
		s.result = append(s.result, meta)
	}
	err = errors.Join(err, s.file.Close())
	s.file = nil
	return err
}

// check reads the file again and verifies it.
func (s *separator) check(ctx context.Context, meta kv.ValueFileMeta) error {
	r, err := valuefile.Open(keepOpen{s.file}, s.id)
	if err != nil {
		return err
	}
	err = r.Verify(ctx, nil)
	if err == nil && r.Meta() != meta {
		err = kv.Corruptf(s.file.Name(), -1, "its metadata reads back as %+v, written was %+v", r.Meta(), meta)
	}
	return errors.Join(err, r.Close())
}

// abort removes all value files.
func (s *separator) abort() (err error) {
	if s.file != nil {
		err = s.file.Close()
	}
	for _, num := range s.created {
		err = errors.Join(err, s.outputs.Remove(manifest.FileValues, num))
	}
	return err
}
