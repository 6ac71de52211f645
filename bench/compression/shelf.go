package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"

	"github.com/klauspost/compress/s2"
)

// shelf is a file of pieces as one codec stores them, each with a checksum behind it.
type shelf struct {
	codec   codec
	pieces  [][]byte // as they were
	places  []place
	bytes   int // of all stored pieces, without checksums
	encoded int // pieces
	file    *os.File

	room   []byte // of encode and read, for what is stored
	opened []byte // what read returned last
	err    error  // the first one
}

// place is where a piece is stored.
type place struct {
	stored  []byte
	offset  int64
	encoded bool
}

const checksumBytes = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newShelf makes the file, and verifies that each piece can be had back from it.
func newShelf(name string, c codec, pieces [][]byte) (s *shelf, err error) {
	s = &shelf{codec: c, pieces: pieces, places: make([]place, len(pieces))}
	var all []byte
	longest := 0
	for i, piece := range pieces {
		longest = max(longest, len(piece))
		p := &s.places[i]
		p.stored, p.encoded = c.store(nil, piece)
		p.offset = int64(len(all))
		all = append(all, p.stored...)
		all = binary.LittleEndian.AppendUint32(all, crc32.Checksum(p.stored, castagnoli))
		s.bytes += len(p.stored)
		if p.encoded {
			s.encoded++
		}
	}
	s.room = make([]byte, s2.MaxEncodedLen(longest)+checksumBytes)
	if s.file, err = os.Create(name); err != nil {
		return nil, err
	}
	if _, err = s.file.Write(all); err != nil {
		return nil, errors.Join(err, s.close())
	}
	for i, piece := range pieces {
		if s.read(i); s.err == nil && string(s.opened) != string(piece) {
			s.err = fmt.Errorf("%s does not return what it was given", c.name)
		}
		if s.err != nil {
			return nil, errors.Join(s.err, s.close())
		}
	}
	return s, nil
}

func (s *shelf) close() error { return errors.Join(s.file.Close(), os.Remove(s.file.Name())) }

// each takes a step for all pieces.
func (s *shelf) each(order []int, step func(piece int)) {
	for _, i := range order {
		step(i)
	}
}

// encode makes again what is stored of a piece.
func (s *shelf) encode(i int) {
	s.codec.store(s.room, s.pieces[i])
}

// decode brings a piece from what is stored of it, in memory.
func (s *shelf) decode(i int) {
	if p := &s.places[i]; p.encoded {
		s.open(p.stored)
	}
}

// read brings a piece from the file, in memory of its own, as a block cache needs it.
func (s *shelf) read(i int) {
	p := &s.places[i]
	n := len(p.stored)
	sealed := s.room
	if !p.encoded {
		sealed = nil
	}
	sealed = slices.Grow(sealed[:0], n+checksumBytes)[:n+checksumBytes]
	if _, err := s.file.ReadAt(sealed, p.offset); err != nil {
		s.fail(err)
		return
	}
	if binary.LittleEndian.Uint32(sealed[n:]) != crc32.Checksum(sealed[:n], castagnoli) {
		s.fail(fmt.Errorf("checksum mismatch of piece %d", i))
		return
	}
	if !p.encoded {
		s.opened = sealed[:n]
		return
	}
	s.open(sealed[:n])
}

// open decodes into memory of its own.
func (s *shelf) open(encoded []byte) {
	var err error
	if s.opened, err = s.codec.decode(nil, encoded); err != nil {
		s.fail(err)
	}
}

func (s *shelf) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}
