//go:build rocksdb

package rocksdb

/*
#include <rocksdb/c.h>
*/
import "C"

import "context"

func (s *store) Put(_ context.Context, key, value []byte) error {
	k, keyLen := bytesOf(key)
	v, valueLen := bytesOf(value)
	var failure *C.char
	C.rocksdb_put(s.db, s.write, k, keyLen, v, valueLen, &failure)
	return take(failure)
}

func (s *store) Delete(_ context.Context, key []byte) error {
	k, n := bytesOf(key)
	var failure *C.char
	C.rocksdb_delete(s.db, s.write, k, n, &failure)
	return take(failure)
}

func (s *store) Get(_ context.Context, key, buf []byte) (value []byte, found bool, err error) {
	err = s.visit(0, key, func(_ int, v []byte, ok bool) error {
		value, found = append(buf[:0], v...), ok
		return nil
	})
	return value, found, err
}

// visit lends the value of a key, pinned where it lies.
func (s *store) visit(i int, key []byte, visit func(i int, value []byte, found bool) error) error {
	k, n := bytesOf(key)
	var failure *C.char
	pinned := C.rocksdb_get_pinned(s.db, s.read, k, n, &failure)
	if err := take(failure); err != nil {
		return err
	}
	if pinned == nil {
		return visit(i, nil, false)
	}
	defer C.rocksdb_pinnableslice_destroy(pinned)
	var valueLen C.size_t
	value := C.rocksdb_pinnableslice_value(pinned, &valueLen)
	return visit(i, view(value, valueLen), true)
}

// GetBatch gets one after the other: several in one call of C are no quicker once
// their keys and values were copied there and back.
func (s *store) GetBatch(_ context.Context, keys [][]byte, visit func(i int, value []byte, found bool) error) error {
	for i, key := range keys {
		if err := s.visit(i, key, visit); err != nil {
			return err
		}
	}
	return nil
}
