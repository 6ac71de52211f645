package sstable

const (
	// pageBytes is the unit in which the kernel reads files from the disk into memory. Where
	// its pages are larger, the layout is as valid and saves less.
	pageBytes = 4 << 10
	// paddingShare: at most one in this many bytes of the data is padding. What is left of a
	// page is half an entry on average, so with 2 % entries of up to 160 bytes are nearly
	// always within one page.
	paddingShare = 50
)

// endOfBlock returns the offset up to which a block of at most target bytes, which begins
// at start, is filled: the end of a page, unless it would end within the page where it
// begins.
func endOfBlock(start int64, target int) int64 {
	end := start + int64(target)
	if page := end - end%pageBytes; page > start {
		return page
	}
	return end
}

// straddles reports whether bytes at an offset take a page more than they need.
func straddles(offset, bytes int64) bool {
	pages := func(n int64) int64 { return (n + pageBytes - 1) / pageBytes }
	return pages(offset%pageBytes+bytes) > pages(bytes)
}

// paddingBefore returns how many bytes of padding a block gets that would end at an offset,
// if the next one takes at least so many bytes: as many as are left of the page, if the next
// one would straddle otherwise, and if paddingShare allows them in addition to those spent.
//
// Without them the next block straddles. As blocks end with a page, it has one entry if blocks
// are not larger than a page, and the block after it begins where it ends.
func paddingBefore(end, next, spent int64) int {
	gap := (pageBytes - end%pageBytes) % pageBytes
	if !straddles(end, next) || (spent+gap)*paddingShare > end {
		return 0
	}
	return int(gap)
}
