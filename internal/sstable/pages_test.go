package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

// paddedEntries fill more than a page, with a little left of the first, and have entries of
// each kind.
func paddedEntries() []kv.Entry {
	entries := numbered(38, 100)
	for i := range entries {
		entries[i].Seq += 100
	}
	entries[3].Expiry = 1_700_000_000_000
	entries = append(entries, put("key00020", "older", 5), del("key00031", 50), rangeDel("key00040", "key00044", 3))
	sortEntries(entries)
	return entries
}

// alone returns a put of which a data block, with its trailer, has so many bytes.
func alone(key string, sealed int, seq kv.SeqNum) kv.Entry {
	e := put(key, "", seq)
	rest := sealed - trailerBytes - aloneBytes(&e)
	if rest+aloneBytes(&e) > 1<<16 {
		rest -= 2 // its offset has four bytes
	}
	e.Value = bytes.Repeat([]byte{'v'}, rest)
	return e
}

// aloneAll returns entries of which each is alone in its block of so many bytes.
func aloneAll(sealed ...int) []kv.Entry {
	var entries []kv.Entry
	for i, n := range sealed {
		entries = append(entries, alone(fmt.Sprintf("%c%05d", 'a'+i%26, i), n, kv.SeqNum(i+1)))
	}
	sortEntries(entries)
	return entries
}

// placed is where a data block is.
type placed struct{ offset, bytes, padding, entries int }

// pages returns how many pages a read of the block takes.
func (p placed) pages() int {
	return (p.offset+p.bytes-1)/pageBytes - p.offset/pageBytes + 1
}

// layout returns the data blocks of a file.
func layout(t *testing.T, r *Reader) []placed {
	t.Helper()
	var all []placed
	for i := range r.index.blocks() {
		b, err := r.fetchBlock(i)
		require.NoError(t, err)
		offset, length := r.index.span(i, i)
		all = append(all, placed{int(offset), length, len(b.padding()), b.entries})
	}
	return all
}

// requireLayout checks a file of these entries, none of them tied, as every reader does, and
// what pages.go promises.
func requireLayout(t *testing.T, entries []kv.Entry, o WriterOptions) []placed {
	t.Helper()
	requireTable(t, entries, o)
	f, _ := build(t, entries, o)
	r := open(t, f, nil)
	blocks := layout(t, r)
	padding := 0
	for i, b := range blocks {
		require.LessOrEqual(t, (padding+b.padding)*paddingShare, b.offset+b.bytes, "block %d", i)
		padding += b.padding
		if b.padding > 0 {
			require.Zero(t, (b.offset+b.bytes)%pageBytes, "a padded block ends with its page")
		}
		if o.BlockBytes <= pageBytes && straddles(int64(b.offset), int64(b.bytes)) {
			require.Equal(t, 1, b.entries, "block %d at %d of %d bytes straddles", i, b.offset, b.bytes)
		}
	}
	require.EqualValues(t, padding, r.Padding())
	require.Zero(t, blocks[len(blocks)-1].padding)
	require.Equal(t, padding > 0, r.footer.version == formatVersion)
	got, found := salvaged(t, f.data)
	requireSameEntries(t, entries, got)
	require.Empty(t, found.Damage)
	return blocks
}

func TestStraddlesIsAboutAvoidablePages(t *testing.T) {
	const p = pageBytes
	for _, test := range []struct {
		offset, bytes int64
		want          bool
	}{
		{0, 1, false}, {0, p, false}, {0, p + 1, false}, {0, 5 * p, false},
		{p, p, false}, {1, p - 1, false}, {1, p, true}, {p - 1, 1, false}, {p - 1, 2, true},
		{1, p + 1, false}, {p - 1, p + 1, false}, {p - 1, p + 2, true}, {7*p + 1, 2 * p, true},
	} {
		require.Equal(t, test.want, straddles(test.offset, test.bytes), "%+v", test)
	}
}

func TestBlocksEndWithAPage(t *testing.T) {
	const p = pageBytes
	for _, test := range []struct {
		start  int64
		target int
		want   int64
	}{
		{0, p, p}, {1, p, p}, {p - 1, p, p}, {p, p, 2 * p},
		{0, 160, 160}, {p - 160, 160, p}, {p - 159, 160, p}, {p - 1, 160, p},
		{0, 32 << 10, 32 << 10}, {100, 32 << 10, 32 << 10}, {0, 5000, p}, {p - 100, 5000, 2 * p},
	} {
		require.Equal(t, test.want, endOfBlock(test.start, test.target), "%+v", test)
	}
}

func TestPaddingKeepsToItsShare(t *testing.T) {
	const p = pageBytes
	for _, test := range []struct {
		end, next, spent int64
		want             int
	}{
		{p, 100, 0, 0},            // nothing is left of the page
		{p - 80, 81, 0, 80},       // 2 % of 4016 bytes
		{p - 80, 80, 0, 0},        // what follows fits
		{p - 80, 81, 1, 0},        // too much padding before
		{p - 81, 82, 0, 0},        // too much by itself
		{p - 80, p + 1, 0, 0},     // two pages wherever it begins
		{p - 80, 2 * p, 0, 80},    // else it would take three
		{100*p - 1, 2, 8190, 1},   // all that is left of the share
		{100*p - 2, 3, 8190, 0},   // one byte more
		{100 * p, 2, 0, 0},        //
		{100*p + 4000, 97, 0, 96}, //
	} {
		require.Equal(t, test.want, paddingBefore(test.end, test.next, test.spent), "%+v", test)
	}
}

func TestBlocksThatFillPagesExactly(t *testing.T) {
	const p = pageBytes
	for name, test := range map[string]struct {
		entries []kv.Entry
		pages   []int // of each block
		padding []int
	}{
		"one page each":         {aloneAll(p, p, p), []int{1, 1, 1}, []int{0, 0, 0}},
		"a byte less":           {aloneAll(p-1, p-1, p-1), []int{1, 1, 1}, []int{1, 1, 0}},
		"a byte more":           {aloneAll(p+1, p+1, p+1), []int{2, 2, 2}, []int{0, 0, 0}},
		"two pages":             {aloneAll(2*p, p, 2*p), []int{2, 1, 2}, []int{0, 0, 0}},
		"just under two pages":  {aloneAll(2*p-100, 2*p-100), []int{2, 2}, []int{100, 0}},
		"too much is left":      {aloneAll(p-200, p-200), []int{1, 2}, []int{0, 0}},
		"large in small blocks": {aloneAll(p-60, 10*p-60, p, 100), []int{1, 10, 1, 1}, []int{60, 60, 0, 0}},
		"one tiny entry":        {aloneAll(40), []int{1}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			blocks := requireLayout(t, test.entries, WriterOptions{})
			require.Len(t, blocks, len(test.pages), "%+v", blocks)
			for i, b := range blocks {
				require.Equal(t, test.pages[i], b.pages(), "%+v", blocks)
				require.Equal(t, test.padding[i], b.padding, "%+v", blocks)
			}
		})
	}
}

// Blocks that would not be read by themselves, and what is read at once by every Open, are
// not padded: so small files stay files of an older version.
func TestSmallFilesHaveNoPadding(t *testing.T) {
	for n := 1; n < 30; n++ {
		for _, o := range []WriterOptions{{}, {BlockBytes: 160}, {BlockBytes: maxBlockBytes}} {
			f, _ := build(t, numbered(n, 100), o)
			r := open(t, f, nil)
			require.Zero(t, r.Padding())
			require.EqualValues(t, formatWithout, r.footer.version)
		}
	}
}

// With padding the offsets of this block would have four bytes.
func TestABlockAtTheWidthOfOffsetsIsNotPadded(t *testing.T) {
	const p = pageBytes
	first := alone("a", 75*p, 9)
	for _, contents := range []int{1<<16 - 4, 1<<16 - 1, 1 << 16} {
		entries := []kv.Entry{first, alone("b", contents+trailerBytes, 8), alone("c", 25*p, 7)}
		end := int64(75*p + contents + trailerBytes)
		require.Positive(t, paddingBefore(end, 25*p, 0), "else this test tests nothing")
		blocks := requireLayout(t, entries, WriterOptions{BlockBytes: 128 << 10})
		require.Len(t, blocks, 3)
		require.Zero(t, blocks[1].padding)
	}
}

// Of entries of 100 bytes and of any lengths around, nearly every one is in one page, and the
// file is hardly larger.
func TestNearlyEveryEntryIsInOnePage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, test := range map[string]struct {
		bytes   func() int
		pages   float64 // of a block, on average over the entries
		padding float64 // share of the data
	}{
		"100 B":         {func() int { return 100 }, 1.01, 0.02},
		"20 to 180 B":   {func() int { return 20 + rng.IntN(161) }, 1.01, 0.02},
		"none":          {func() int { return 0 }, 1.001, 0.005},
		"255 B":         {func() int { return 255 }, 1.06, 0.02},
		"a few of 2 KB": {func() int { return 50 + 2000*(rng.IntN(40)/39) }, 1.05, 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			entries := numbered(4000, 0)
			for i := range entries {
				entries[i].Value = bytes.Repeat([]byte{byte(i)}, test.bytes())
			}
			f, _ := build(t, entries, WriterOptions{})
			r := open(t, f, nil)
			pages := 0
			for _, b := range layout(t, r) {
				pages += b.pages() * b.entries
			}
			require.LessOrEqual(t, float64(pages), test.pages*float64(len(entries)))
			require.LessOrEqual(t, float64(r.Padding()), test.padding*float64(r.footer.data))
		})
	}
}

func TestRandomFilesKeepToTheirPages(t *testing.T) {
	testsize.OneGoroutine(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 40 {
		most := []int{20, 200, 600, 3000, 9000}[i%5]
		entries := numbered(1+rng.IntN(60_000/most), 0)
		for i := range entries {
			entries[i].Value = bytes.Repeat([]byte{byte(i)}, rng.IntN(most))
		}
		requireLayout(t, entries, WriterOptions{BlockBytes: []int{100, 512, 4 << 10, 5000, 32 << 10}[rng.IntN(5)]})
	}
}

// Padding is covered by the checksum, and a block with another is none that a writer makes.
func TestChangedPaddingIsDamage(t *testing.T) {
	entries := paddedEntries()
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	b, err := r.fetchBlock(0)
	require.NoError(t, err)
	require.Greater(t, len(b.padding()), 8)
	qs := answers(entries)[:9]
	for i := range b.padding() {
		damaged := bytes.Clone(f.data)
		damaged[b.offsetsEnd()+i] ^= 1 << (i % 8)
		require.True(t, requireHonest(t, damaged, entries, qs, fmt.Sprintf("byte %d of the padding", i)))
		contents := bytes.Clone(b.data)
		contents[b.offsetsEnd()+i]++
		_, ok := parseBlock(contents)
		require.False(t, ok)
	}
}
