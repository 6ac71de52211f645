package main

import (
	"errors"
	"fmt"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// codec encodes and decodes a piece. Both functions write to dst, and use its memory if
// that is large enough. Not safe for concurrent use.
type codec struct {
	name   string
	encode func(dst, src []byte) []byte
	decode func(dst, src []byte) ([]byte, error)
}

// codecs holds all codecs; the first stores a piece unchanged.
type codecs struct {
	all   []codec
	close func() error
}

// newCodecs returns all codecs. Codecs with a dictionary build it from sample, as a
// file's writer could do with its first pieces.
func newCodecs(sample []byte) (*codecs, error) {
	c := &codecs{all: []codec{{name: "none"}, {"s2", s2.Encode, s2.Decode}, {"s2 better", s2.EncodeBetter, s2.Decode}}}
	dict := s2.MakeDict(sample, nil)
	if dict == nil {
		return nil, fmt.Errorf("no dictionary of s2 from %d bytes", len(sample))
	}
	c.all = append(c.all, codec{"s2 dict", dict.Encode, dict.Decode})

	// Blocks have a checksum of their own.
	plain := []zstd.EOption{zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false)}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderDictRaw(dictionary, sample))
	if err != nil {
		return nil, err
	}
	decode := func(dst, src []byte) ([]byte, error) { return decoder.DecodeAll(src, dst[:0]) }
	var closers []func() error
	for _, z := range []struct {
		name   string
		option []zstd.EOption
	}{
		{"zstd fastest", []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest)}},
		{"zstd default", []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedDefault)}},
		{"zstd dict", []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderDictRaw(dictionary, sample)}},
	} {
		encoder, err := zstd.NewWriter(nil, append(z.option, plain...)...)
		if err != nil {
			return nil, err
		}
		closers = append(closers, encoder.Close)
		c.all = append(c.all, codec{z.name, func(dst, src []byte) []byte { return encoder.EncodeAll(src, dst[:0]) }, decode})
	}
	c.close = func() error {
		decoder.Close()
		var all error
		for _, f := range closers {
			all = errors.Join(all, f())
		}
		return all
	}
	return c, nil
}

// dictionary is the number of the one that zstd is given.
const dictionary = 1

// store returns what a file would hold of src, and whether that is encoded: as in
// LevelDB, only if that saves an eighth. The result may use the memory of dst.
func (c *codec) store(dst, src []byte) (stored []byte, encoded bool) {
	if c.encode == nil {
		return src, false
	}
	if dst = c.encode(dst, src); len(dst) > len(src)-len(src)/8 {
		return src, false
	}
	return dst, true
}
