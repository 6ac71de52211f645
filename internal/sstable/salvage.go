package sstable

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Salvaged is what Salvage found in a file.
type Salvaged struct {
	// Foreign says why nothing was taken: the file is whole enough to say that it is another
	// one.
	Foreign string
	// Meta is what the properties say; nil if these are damaged. Its size is that of the file.
	Meta    *kv.TableMeta
	Blocks  uint64 // data blocks that were read
	Entries uint64 // that were passed on
	Gaps    []Gap  // parts of the data that were not read, in order
	// Damage lists every part that does not verify. Damage without gaps lost nothing.
	Damage []Damage
	// RangesKnown: every range tombstone of the file was passed on, whatever the gaps are.
	RangesKnown bool

	filter   *filter // nil: damaged
	shadowed bool    // the file may have several versions of a key
}

// HasFilter reports whether the filter is whole, so that MayContain can exclude keys.
func (s *Salvaged) HasFilter() bool { return s.filter != nil }

// MayContain reports false only if the file had no put or delete of the key, also none that
// is in a gap.
func (s *Salvaged) MayContain(key []byte) bool {
	return s.filter == nil || s.filter.mayContain(keyhash.Sum(key))
}

// Gap is a part of the data that was not read.
type Gap struct {
	Offset, Bytes int64
	// After and Before bound the keys of the lost entries, both included; nil: not known.
	After, Before []byte
	Blocks        uint64 // 0: not known
	Entries       uint64 // 0: not known
	// Exclusive: no version of the key Before is lost that is newer than those that were read.
	Exclusive bool
}

// Damage is a part of a file that does not verify.
type Damage struct {
	Offset, Bytes int64
	Reason        string
}

// Salvage reads a file that may be damaged, and passes every entry of it whose block verifies
// to visit, in order; visit borrows the entry for the call. A range tombstone is passed if
// its data block or the block of range tombstones verifies.
//
// If the index or the footer is damaged, it looks for the data blocks: the start of one is
// known by its form, the end by the checksum. Then it keeps the data of the file in memory.
//
// Errors: kv.ErrUnsupportedVersion, those of reads, of visit and of ctx. Damage is in the
// result.
func Salvage(ctx context.Context, f vfs.File, id kv.FileID, visit func(*kv.Entry) error) (Salvaged, error) {
	s := salvage{ctx: ctx, r: &Reader{file: f, identity: newIdentity(id)}, visit: visit}
	s.found.shadowed = true
	err := s.run(id)
	if s.found.Meta == nil {
		s.found.filter = nil // it is not known with which hash it was built
	}
	return s.found, err
}

// salvage is the state of one Salvage.
type salvage struct {
	ctx   context.Context
	r     *Reader
	visit func(*kv.Entry) error
	found Salvaged

	size   int64
	spans  []span // data blocks, and places of damaged ones
	ranges []kv.Entry
	data   []byte // of the file, if there is no index
	open   bool   // where the data end is not known
	work   int64  // bytes that were searched in vain

	last position
	key  []byte
}

// span is where a data block is. Without an index it is one that verifies.
type span struct {
	offset, length int64
	entries        uint64 // 0: not known
	separator      []byte // nil: not known
}

func (s *salvage) run(id kv.FileID) (err error) {
	if s.size, err = s.r.file.Size(); err != nil {
		return err
	}
	indexed, err := s.readTail(id)
	if err != nil || s.found.Foreign != "" {
		return err
	}
	if !indexed {
		if err := s.search(); err != nil {
			return err
		}
	}
	return s.read()
}

func (s *salvage) damaged(offset, bytes int64, reason string) {
	s.found.Damage = append(s.found.Damage, Damage{offset, bytes, reason})
}

// readTail reads what follows the data, and reports whether there is an index. It keeps the
// footer, if that is whole.
func (s *salvage) readTail(id kv.FileID) (indexed bool, err error) {
	end := make([]byte, min(s.size, maxFooterBytes))
	if err := s.r.readAt(end, s.size-int64(len(end))); err != nil {
		return false, err
	}
	f, reason, err := parseFooter(end, uint64(s.size))
	switch {
	case err != nil:
		return false, err
	case reason != "":
		s.damaged(max(s.size-footerBytes, 0), min(s.size, footerBytes), reason)
		return false, nil
	case f.id != id:
		s.found.Foreign = "it is another file: its footer names another partition or number"
		return false, nil
	}
	s.r.footer = f
	tail := make([]byte, f.tailSize())
	if err := s.r.readAt(tail, int64(f.data)); err != nil {
		return false, err
	}
	offset := int64(f.data)
	next := func(kind blockKind, length uint64, use func(contents []byte) bool) {
		sealed := tail[:length]
		at := offset
		tail, offset = tail[length:], offset+int64(length)
		if kind == kindRanges && length == 0 {
			return
		}
		contents, reason := s.r.identity.unseal(sealed, kind, at)
		if reason == "" && !use(contents) {
			reason = kind.String() + " malformed"
		}
		if reason != "" {
			s.damaged(at, int64(length), reason)
		}
	}
	s.found.RangesKnown = f.ranges == 0
	next(kindFilter, f.filter, s.useFilter)
	next(kindIndex, f.index, func(contents []byte) bool {
		s.r.index, indexed = parseIndex(contents, f.data)
		return indexed
	})
	next(kindRanges, f.ranges, s.useRanges)
	next(kindProperties, f.properties, func(contents []byte) bool { return s.useProperties(contents, f.version) })
	if indexed {
		s.useIndex()
	}
	return indexed, nil
}

func (s *salvage) useFilter(contents []byte) bool {
	f, ok := parseFilter(contents)
	if ok {
		s.found.filter = &f
	}
	return ok
}

func (s *salvage) useRanges(contents []byte) bool {
	ranges, ok := parseRanges(contents)
	if ok {
		s.ranges = ranges.All()
		s.found.RangesKnown = true
	}
	return ok
}

func (s *salvage) useProperties(contents []byte, version uint32) bool {
	m := &kv.TableMeta{}
	var stats kv.TableStats
	if hash, _, ok := parseProperties(contents, version, m, &stats); !ok || hash != keyhash.Name {
		return false
	}
	m.Size = uint64(s.size)
	s.found.Meta = m
	s.found.shadowed = stats.Shadowed > 0
	return true
}

func (s *salvage) useIndex() {
	x := &s.r.index
	for i := range x.blocks() {
		offset, length := x.span(i, i)
		f := x.fields(i)
		s.spans = append(s.spans, span{offset, int64(length), f.entries, slices.Concat(x.common, f.suffix)})
	}
}

// read passes on the entries of all blocks, and notes the gaps between them.
func (s *salvage) read() error {
	end := int64(s.r.footer.data) // 0 without a footer
	var gap *Gap
	var after []byte // nothing before it is lost
	at := int64(0)
	lose := func(sp span) {
		if gap == nil {
			s.found.Gaps = append(s.found.Gaps, Gap{Offset: sp.offset, After: after})
			gap = &s.found.Gaps[len(s.found.Gaps)-1]
		}
		gap.Bytes = sp.offset + sp.length - gap.Offset
		gap.Before = sp.separator
		if sp.entries > 0 {
			gap.Blocks++
		}
		gap.Entries += sp.entries
	}
	for _, sp := range s.spans {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if sp.offset > at { // without an index
			s.damaged(at, sp.offset-at, "no data block verifies here")
			lose(span{offset: at, length: sp.offset - at})
		}
		at = sp.offset + sp.length
		b, reason, err := s.block(sp)
		if err != nil {
			return err
		}
		if reason == "" {
			reason = s.check(&b)
		}
		if reason != "" {
			s.damaged(sp.offset, sp.length, reason)
			lose(sp)
			continue
		}
		if gap != nil && gap.Before == nil {
			gap.Before, gap.Exclusive = s.firstKey(&b), !s.found.shadowed
		}
		gap = nil
		s.found.Blocks++
		if err := s.pass(&b); err != nil {
			return err
		}
		if after = sp.separator; after == nil {
			after = bytes.Clone(s.last.key)
		}
	}
	if at < end {
		s.damaged(at, end-at, "no data block verifies here")
		lose(span{offset: at, length: end - at})
	}
	if s.open {
		lose(span{offset: at, length: s.size - at})
	}
	return s.passRanges(nil)
}

// block reads and verifies a block.
func (s *salvage) block(sp span) (b block, reason string, err error) {
	var sealed []byte
	if s.data != nil {
		sealed = s.data[sp.offset : sp.offset+sp.length]
	} else {
		sealed = make([]byte, sp.length)
		if err := s.r.readAt(sealed, sp.offset); errors.Is(err, kv.ErrCorrupt) {
			return b, "the file ends here", nil
		} else if err != nil {
			return b, "", err
		}
	}
	contents, reason := s.r.identity.unseal(sealed, kindData, sp.offset)
	if reason != "" {
		return b, reason, nil
	}
	b, ok := parseBlock(contents)
	if !ok {
		return b, "data block is malformed", nil
	}
	return b, "", nil
}

// check decodes all entries of a block, which must follow those before, before any of them
// is passed on.
func (s *salvage) check(b *block) string {
	at := position{key: bytes.Clone(s.last.key), seq: s.last.seq, point: s.last.point}
	var e kv.Entry
	for i := range b.entries {
		if !s.decode(b, i, &e) {
			return "data block is malformed"
		}
		relation := at.relation(&e)
		if relation == outOfOrder || checkEntry(&e) != nil {
			return "entries are out of order or out of bounds"
		}
		at.move(&e, relation)
	}
	return ""
}

func (s *salvage) firstKey(b *block) []byte {
	var e kv.Entry
	s.decode(b, 0, &e)
	return bytes.Clone(e.Key)
}

// decode decodes entry i, whose key is valid until the next call.
func (s *salvage) decode(b *block, i int, e *kv.Entry) bool {
	var h header
	if !b.header(i, &h) {
		return false
	}
	s.key = append(append(s.key[:0], b.prefix()...), b.suffix(&h)...)
	*e = kv.Entry{Key: s.key, Seq: h.seq, Kind: h.kind, Apart: h.apart, Expiry: h.expiry}
	if h.kind != kv.KindDelete {
		e.Value = b.value(&h)
	}
	return true
}

// pass passes the entries of a checked block on, with the range tombstones between them.
func (s *salvage) pass(b *block) error {
	var e kv.Entry
	for i := range b.entries {
		s.decode(b, i, &e)
		s.last.move(&e, s.last.relation(&e))
		if e.Kind == kv.KindRangeDelete && s.ranges != nil {
			continue // it is among ranges
		}
		if err := s.passRanges(&e); err != nil {
			return err
		}
		s.found.Entries++
		if err := s.visit(&e); err != nil {
			return err
		}
	}
	return nil
}

// passRanges passes on the range tombstones that come before e; all if e is nil.
func (s *salvage) passRanges(e *kv.Entry) error {
	for len(s.ranges) > 0 {
		t := &s.ranges[0]
		if e != nil && kv.Compare(t.Key, t.Seq, e.Key, e.Seq) > 0 {
			return nil
		}
		s.found.Entries++
		if err := s.visit(t); err != nil {
			return err
		}
		if s.ranges = s.ranges[1:]; len(s.ranges) == 0 {
			s.ranges = []kv.Entry{} // not nil: those in data blocks were passed on
		}
	}
	return nil
}

// search finds the data blocks of a file without an index.
func (s *salvage) search() error {
	end := s.size
	if s.r.footer.data > 0 {
		end = int64(s.r.footer.data)
	}
	s.data = make([]byte, end)
	if err := s.r.readAt(s.data, 0); err != nil {
		return err
	}
	last := int64(0) // where a block ends that was found
	for at := int64(0); at < end; {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		n := int64(0)
		if near, far, ok := plausible(s.data[at:]); ok {
			n = s.endOf(kindData, at, min(near, end-at), min(far, end-at))
		}
		if n == 0 {
			at++
			continue
		}
		s.spans = append(s.spans, span{offset: at, length: n})
		at += n
		last = at
	}
	s.open = s.r.footer.data == 0 && !s.searchTail(last)
	return nil
}

// searchTail reports whether the data end at an offset, because the filter or the index
// begins there, and uses what follows.
func (s *salvage) searchTail(at int64) bool {
	next := func(kind blockKind) (contents []byte) {
		left := int64(len(s.data)) - at
		if n := s.endOf(kind, at, left, left); n > 0 {
			contents = s.data[at : at+n-trailerBytes]
			at += n
		}
		return contents
	}
	filter, index := next(kindFilter), next(kindIndex)
	if filter == nil && index == nil {
		return false
	}
	if filter != nil {
		s.useFilter(filter)
	}
	ranges := next(kindRanges)
	if ranges != nil {
		s.useRanges(ranges)
	}
	if properties := next(kindProperties); properties != nil {
		for version := uint32(formatVersion); version >= formatWithout && !s.useProperties(properties, version); version-- {
		}
		s.found.RangesKnown = s.found.RangesKnown || index != nil && ranges == nil // nothing lies between
	}
	return true
}

// endOf returns the length of the sealed block of a kind that begins at an offset; 0 if there
// is none. It is at most near bytes long, or, unless too many places were searched in vain,
// far.
func (s *salvage) endOf(kind blockKind, at, near, far int64) int64 {
	// In a file that is damaged all over, every place would be searched up to the end.
	const most = 16
	if near < far && s.work < most*int64(len(s.data)) {
		near = far
	}
	raw := crcUint(crcUint(uint32(s.r.identity), uint64(at), 8), uint64(kind), 1)
	data := s.data[at : at+near]
	for i := range len(data) - trailerBytes + 1 {
		raw = castagnoli[byte(raw)^data[i]] ^ raw>>8
		if data[i] != compressionNone || binary.LittleEndian.Uint32(data[i+1:]) != ^raw {
			continue
		}
		if _, ok := parseBlock(data[:i]); ok || kind != kindData {
			return int64(i) + trailerBytes
		}
	}
	s.work += near
	return 0
}

// usualBlockBytes is more than a block has whose entries are not large.
const usualBlockBytes = 16 << 10

// plausible reports whether bytes may begin a data block, and how long it can be with its
// trailer: usually, and at most.
func plausible(b []byte) (near, far int64, ok bool) {
	if len(b) < minBlockBytes+trailerBytes {
		return 0, 0, false
	}
	entries := uint64(binary.LittleEndian.Uint32(b))
	offsets := uint64(frontBytes) + uint64(binary.LittleEndian.Uint16(b[4:])) + entries
	if entries == 0 {
		return 0, 0, false
	}
	for _, width := range []uint64{2, 4} {
		if last, ok := lastOffset(b, offsets, entries, width); ok {
			near, far = int64(last)+usualBlockBytes, int64(last)+maxBlockBytes
			if entries == 1 { // a large value has a block of its own
				far = maxDataBlock
			}
			return near, far, true
		}
	}
	return 0, 0, false
}

// lastOffset returns the offset of the last entry, if the offsets of this width are those of
// a block: between them and the first entry is nothing but padding, and they ascend.
func lastOffset(b []byte, offsets, entries, width uint64) (last uint64, ok bool) {
	end := offsets + width*entries
	if end > uint64(len(b)) {
		return 0, false
	}
	for i := range entries {
		var at uint64
		if p := b[offsets+width*i:]; width == 2 {
			at = uint64(binary.LittleEndian.Uint16(p))
		} else {
			at = uint64(binary.LittleEndian.Uint32(p))
		}
		if i == 0 && (at < end || at > end+pageBytes) || i > 0 && at < last+minEntryBytes || at >= uint64(len(b)) {
			return 0, false
		}
		if i == 0 && !isPadding(b[end:at]) {
			return 0, false
		}
		last = at
	}
	return last, true
}
