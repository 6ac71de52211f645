package mergeiter

import "github.com/kvd-db/kvd/internal/kv"

// Failed returns an iterator that is nowhere, because of err.
func Failed(err error) kv.Iterator { return &failed{err} }

type failed struct{ err error }

func (f *failed) First() bool        { return false }
func (f *failed) SeekGE([]byte) bool { return false }
func (f *failed) Next() bool         { return false }
func (f *failed) Last() bool         { return false }
func (f *failed) SeekLT([]byte) bool { return false }
func (f *failed) Prev() bool         { return false }
func (f *failed) Valid() bool        { return false }
func (f *failed) Entry() *kv.Entry   { return nil }
func (f *failed) Err() error         { return f.err }
func (f *failed) Close() error       { return f.err }
