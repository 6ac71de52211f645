package sstable

import (
	"encoding/binary"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// statsCensus counts the entries for kv.TableStats.
type statsCensus struct {
	stats kv.TableStats
	point bool // a put or delete of the current key was seen

	first, last uint64   // expiries
	sample      []uint64 // every stride-th expiry
	stride      uint64
}

// maxSample bounds the expiries that are kept: a few dozen for each quantile stored.
const maxSample = 512

// add counts e, which has relation r to the entry before it.
func (c *statsCensus) add(e *kv.Entry, r relation) {
	if r == newKey {
		c.point = false
	}
	if e.Kind == kv.KindRangeDelete {
		return
	}
	if c.point {
		c.stats.Shadowed++
	}
	c.point = true
	if e.Expiry != 0 {
		c.expires(e.Expiry)
	}
}

func (c *statsCensus) expires(at uint64) {
	if c.stats.Expiring == 0 {
		c.first, c.last, c.stride = at, at, 1
	}
	c.first, c.last = min(c.first, at), max(c.last, at)
	if c.stats.Expiring%c.stride == 0 {
		if len(c.sample) == maxSample {
			for i := range maxSample / 2 {
				c.sample[i] = c.sample[2*i]
			}
			c.sample = c.sample[:maxSample/2]
			c.stride *= 2
		}
		if c.stats.Expiring%c.stride == 0 {
			c.sample = append(c.sample, at)
		}
	}
	c.stats.Expiring++
}

// end completes the count.
func (c *statsCensus) end() {
	n := len(c.sample)
	if n == 0 {
		return
	}
	slices.Sort(c.sample)
	points := min(n, kv.MaxExpiries)
	c.stats.Expiries = make([]uint64, points)
	for i := range points {
		c.stats.Expiries[i] = c.sample[i*(n-1)/max(points-1, 1)]
	}
	c.stats.Expiries[0] = c.first
	c.stats.Expiries[points-1] = c.last
}

func sameStats(a, b *kv.TableStats) bool {
	return a.Shadowed == b.Shadowed && a.Expiring == b.Expiring && slices.Equal(a.Expiries, b.Expiries)
}

// appendStats appends what version 4 adds to the properties of version 3.
func appendStats(dst []byte, s *kv.TableStats) []byte {
	dst = binary.AppendUvarint(dst, s.Shadowed)
	dst = binary.AppendUvarint(dst, s.Expiring)
	if s.Expiring == 0 {
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.Expiries)))
	var last uint64
	for _, at := range s.Expiries {
		dst = binary.AppendUvarint(dst, at-last)
		last = at
	}
	return dst
}

// parseStats decodes what appendStats appends, for a table of a format version with this
// many entries.
func parseStats(d *kv.Decoder, entries uint64, s *kv.TableStats, version uint32) (ok bool) {
	s.Shadowed = d.Uvarint(entries)
	s.Expiring = d.Uvarint(entries)
	if s.Expiring == 0 {
		return s.Shadowed > 0 || version > formatStats // or it would be version 3
	}
	n := d.Uvarint(min(kv.MaxExpiries, s.Expiring))
	if n == 0 {
		return false
	}
	s.Expiries = make([]uint64, n)
	var last uint64
	for i := range s.Expiries {
		last += d.Uvarint(1<<64 - 1 - last)
		s.Expiries[i] = last
	}
	return s.Expiries[0] > 0
}
