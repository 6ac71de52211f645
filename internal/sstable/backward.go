package sstable

import "github.com/kvd-db/kvd/internal/kv"

func (it *Iterator) Last() bool {
	it.ahead.bytes = it.o.Readahead
	return it.begin(backward) && it.enterEnd(it.r.index.blocks()-1) && it.stepBack()
}

func (it *Iterator) SeekLT(key []byte) bool {
	it.ahead.bytes = 0
	if !it.begin(backward) {
		return false
	}
	i := it.r.index.find(key, kv.MaxSeqNum)
	if i == it.r.index.blocks() {
		return it.enterEnd(i-1) && it.stepBack()
	}
	// The first entry with a key >= key is in block i, so the one sought is the entry
	// before it, in block i or at the end of the block before.
	return it.enter(i) && it.seek(key) && it.stepBack()
}

func (it *Iterator) Prev() bool {
	if it.walk == forward {
		panic("sstable: Prev on a forward walk")
	}
	return it.valid && it.stepBack()
}

// stepBack moves to the entry before entry at, which may be the last of the previous
// block.
func (it *Iterator) stepBack() bool {
	it.valid = false
	if it.at == 0 && (it.blockAt == 0 || !it.enterEnd(it.blockAt-1)) {
		return false
	}
	return it.read(it.at - 1)
}

// enterEnd makes block i the current one and positions after its last entry.
func (it *Iterator) enterEnd(i int) bool {
	if !it.enter(i) {
		return false
	}
	it.at = it.block.entries
	it.touched += touchAll(it.block.data)
	return true
}
