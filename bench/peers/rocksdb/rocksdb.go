//go:build rocksdb

// Package rocksdb runs RocksDB through its C interface: leveled compaction with its
// defaults, Bloom filters of ten bits, four background threads. It needs the headers
// and the library of RocksDB (librocksdb-dev), and the build tag rocksdb.
package rocksdb

/*
#cgo LDFLAGS: -lrocksdb
#include <stdlib.h>
#include <rocksdb/c.h>
*/
import "C"

import (
	"errors"
	"runtime"
	"unsafe"

	"github.com/kvd-db/kvd/bench/peers"
)

const (
	memtables         = 4 // before writers wait
	backgroundThreads = 4
)

// store owns what C has allocated for it; Close gives it back.
type store struct {
	db      *C.rocksdb_t
	options *C.rocksdb_options_t
	cache   *C.rocksdb_cache_t
	load    *C.rocksdb_writeoptions_t
	write   *C.rocksdb_writeoptions_t // of a Put or Delete
	read    *C.rocksdb_readoptions_t
}

// Open opens a store.
func Open(o peers.Options) (peers.Store, error) {
	s := &store{
		options: C.rocksdb_options_create(),
		cache:   C.rocksdb_cache_create_lru(C.size_t(o.Cache())),
		load:    C.rocksdb_writeoptions_create(),
		write:   C.rocksdb_writeoptions_create(),
		read:    C.rocksdb_readoptions_create(),
	}
	table := C.rocksdb_block_based_options_create()
	C.rocksdb_block_based_options_set_block_cache(table, s.cache)
	C.rocksdb_block_based_options_set_filter_policy(table, C.rocksdb_filterpolicy_create_bloom_full(10))
	C.rocksdb_options_set_block_based_table_factory(s.options, table)
	C.rocksdb_block_based_options_destroy(table)
	C.rocksdb_options_set_create_if_missing(s.options, 1)
	C.rocksdb_options_set_compression(s.options, C.rocksdb_no_compression)
	C.rocksdb_options_increase_parallelism(s.options, backgroundThreads)
	C.rocksdb_options_set_max_write_buffer_number(s.options, memtables)
	C.rocksdb_options_set_write_buffer_size(s.options, C.size_t(o.Memtables()/memtables))
	if o.Sync {
		C.rocksdb_writeoptions_set_sync(s.write, 1)
	}
	dir := C.CString(o.Dir)
	defer C.free(unsafe.Pointer(dir))
	var failure *C.char
	s.db = C.rocksdb_open(s.options, dir, &failure)
	if err := take(failure); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// take turns an error of C into one of Go.
func take(failure *C.char) error {
	if failure == nil {
		return nil
	}
	defer C.rocksdb_free(unsafe.Pointer(failure))
	return errors.New(C.GoString(failure))
}

// bytesOf lends bytes to C for the time of one call; nothing needs an address if
// there are none.
func bytesOf(b []byte) (*C.char, C.size_t) {
	return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))), C.size_t(len(b))
}

// view is memory of C as a slice.
func view(p *C.char, n C.size_t) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), int(n)) }

func (s *store) Load(entries []peers.Entry) error {
	batch := C.rocksdb_writebatch_create()
	defer C.rocksdb_writebatch_destroy(batch)
	for _, e := range entries {
		key, keyLen := bytesOf(e.Key)
		value, valueLen := bytesOf(e.Value)
		C.rocksdb_writebatch_put(batch, key, keyLen, value, valueLen)
	}
	var failure *C.char
	C.rocksdb_write(s.db, s.load, batch, &failure)
	return take(failure)
}

func (s *store) Settle() error {
	flush := C.rocksdb_flushoptions_create()
	defer C.rocksdb_flushoptions_destroy(flush)
	C.rocksdb_flushoptions_set_wait(flush, 1)
	var failure *C.char
	C.rocksdb_flush(s.db, flush, &failure)
	if err := take(failure); err != nil {
		return err
	}
	C.rocksdb_compact_range(s.db, nil, 0, nil, 0)
	return nil
}

func (s *store) Close() error {
	if s.db != nil {
		C.rocksdb_close(s.db)
	}
	C.rocksdb_readoptions_destroy(s.read)
	C.rocksdb_writeoptions_destroy(s.write)
	C.rocksdb_writeoptions_destroy(s.load)
	C.rocksdb_options_destroy(s.options)
	C.rocksdb_cache_destroy(s.cache)
	return nil
}

func (s *store) Forward(from []byte, visit peers.Visit) error {
	return peers.Walk(s.forward(from))(visit)
}

func (s *store) Backward(visit peers.Visit) error { return peers.Walk(s.backward())(visit) }

func (s *store) forward(from []byte) (peers.Cursor, error) {
	it := C.rocksdb_create_iterator(s.db, s.read)
	if len(from) == 0 {
		C.rocksdb_iter_seek_to_first(it)
	} else {
		key, n := bytesOf(from)
		C.rocksdb_iter_seek(it, key, n)
	}
	return &cursor{it: it, begun: false}, nil
}

func (s *store) backward() (peers.Cursor, error) {
	it := C.rocksdb_create_iterator(s.db, s.read)
	C.rocksdb_iter_seek_to_last(it)
	return &cursor{it: it, backward: true}, nil
}

// cursor stands on its first entry before the first Next.
type cursor struct {
	it       *C.rocksdb_iterator_t
	backward bool
	begun    bool
}

func (c *cursor) Next() bool {
	switch {
	case !c.begun:
		c.begun = true
	case C.rocksdb_iter_valid(c.it) == 0: // it must not be moved
	case c.backward:
		C.rocksdb_iter_prev(c.it)
	default:
		C.rocksdb_iter_next(c.it)
	}
	return C.rocksdb_iter_valid(c.it) != 0
}

func (c *cursor) Entry() (key, value []byte) {
	var keyLen, valueLen C.size_t
	k := C.rocksdb_iter_key(c.it, &keyLen)
	v := C.rocksdb_iter_value(c.it, &valueLen)
	return view(k, keyLen), view(v, valueLen)
}

func (c *cursor) Err() error {
	var failure *C.char
	C.rocksdb_iter_get_error(c.it, &failure)
	return take(failure)
}

func (c *cursor) Close() error {
	C.rocksdb_iter_destroy(c.it)
	runtime.KeepAlive(c)
	return nil
}
