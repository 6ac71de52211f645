package main

import (
	"container/list"

	"github.com/maypok86/otter/v2"
)

// cache is a policy that decides which blocks to keep.
type cache interface {
	// use reports whether the block is cached, and adds it if it is not.
	use(block int) (hit bool)
}

var policies = []struct {
	name string
	make func(blocks int) cache
}{
	{"otter", newOtter},
	{"LRU", newLRU},
	{"CLOCK", newClock},
	{"SIEVE", newSieve},
	{"S3-FIFO", newS3FIFO},
}

// newOtter returns the library's cache: W-TinyLFU, a sketch of how often each block was
// asked for decides what may come in.
func newOtter(blocks int) cache {
	return &otterCache{otter.Must(&otter.Options[int, struct{}]{
		MaximumSize: blocks,
		Executor:    func(task func()) { task() }, // so that a run can be repeated
	})}
}

type otterCache struct{ c *otter.Cache[int, struct{}] }

func (o *otterCache) use(block int) (hit bool) {
	if _, hit = o.c.GetIfPresent(block); !hit {
		o.c.Set(block, struct{}{})
	}
	return hit
}

// lru evicts the least recently used block. s3fifo (Yang et al., SOSP 2023) has a short
// queue for new blocks. Blocks that were used more than once move on to the long queue;
// it remembers the others that it evicted.
type lru struct {
	room  int
	order *list.List // of block numbers, the last used first
	at    map[int]*list.Element
}

func newLRU(blocks int) cache {
	return &lru{room: blocks, order: list.New(), at: map[int]*list.Element{}}
}

func (l *lru) use(block int) (hit bool) {
	if e := l.at[block]; e != nil {
		l.order.MoveToFront(e)
		return true
	}
	if l.order.Len() == l.room {
		delete(l.at, l.order.Remove(l.order.Back()).(int))
	}
	l.at[block] = l.order.PushFront(block)
	return false
}

// clock is the textbook's: a new block takes the place of the dropped one and the hand
// goes on, so that it comes back only after a whole turn.
type clock struct {
	room, hand int
	ring       []int
	used       []bool // per place of the ring
	at         map[int]int
}

func newClock(blocks int) cache { return &clock{room: blocks, at: map[int]int{}} }

func (c *clock) use(block int) (hit bool) {
	if i, ok := c.at[block]; ok {
		c.used[i] = true
		return true
	}
	if len(c.ring) < c.room {
		c.at[block] = len(c.ring)
		c.ring, c.used = append(c.ring, block), append(c.used, false)
		return false
	}
	for c.used[c.hand] {
		c.used[c.hand] = false
		c.hand = (c.hand + 1) % c.room
	}
	delete(c.at, c.ring[c.hand])
	c.ring[c.hand], c.at[block] = block, c.hand
	c.hand = (c.hand + 1) % c.room
	return false
}

// sieve (Zhang et al., NSDI 2024) is a clock whose survivors keep their places, while
// all new blocks come in at the front.
type sieve struct {
	room  int
	order *list.List // of *sieved, the newest first
	hand  *list.Element
	at    map[int]*list.Element
}

type sieved struct {
	block int
	used  bool
}

func newSieve(blocks int) cache {
	return &sieve{room: blocks, order: list.New(), at: map[int]*list.Element{}}
}

func (s *sieve) use(block int) (hit bool) {
	if e := s.at[block]; e != nil {
		e.Value.(*sieved).used = true
		return true
	}
	if s.order.Len() == s.room {
		for {
			if s.hand == nil {
				s.hand = s.order.Back()
			}
			e := s.hand
			s.hand = e.Prev()
			if v := e.Value.(*sieved); !v.used {
				delete(s.at, v.block)
				s.order.Remove(e)
				break
			} else {
				v.used = false
			}
		}
	}
	s.at[block] = s.order.PushFront(&sieved{block: block})
	return false
}

// s3fifo (Yang et al., SOSP 2023) has a short queue for new blocks, which go on to the
// long one if they were used more than once, and remembers whom it dropped from it.
type s3fifo struct {
	smallRoom, mainRoom int
	small, main         []int       // queues of blocks
	uses                map[int]int // of the blocks that are there, at most 3
	ghosts              []int       // dropped from the short queue, the last ones
	ghost               map[int]int // how often each is in ghosts
}

func newS3FIFO(blocks int) cache {
	small := max(blocks/10, 1)
	return &s3fifo{smallRoom: small, mainRoom: max(blocks-small, 1), uses: map[int]int{}, ghost: map[int]int{}}
}

func (s *s3fifo) use(block int) (hit bool) {
	if n, ok := s.uses[block]; ok {
		s.uses[block] = min(n+1, 3)
		return true
	}
	for len(s.small)+len(s.main) >= s.smallRoom+s.mainRoom {
		if len(s.small) >= s.smallRoom {
			s.leaveSmall()
		} else {
			s.leaveMain()
		}
	}
	if s.ghost[block] > 0 {
		s.main = append(s.main, block)
	} else {
		s.small = append(s.small, block)
	}
	s.uses[block] = 0
	return false
}

func (s *s3fifo) leaveSmall() {
	block := s.small[0]
	s.small = s.small[1:]
	if s.uses[block] > 1 {
		s.uses[block] = 0
		s.main = append(s.main, block)
		return
	}
	delete(s.uses, block)
	s.ghosts = append(s.ghosts, block)
	s.ghost[block]++
	if len(s.ghosts) > s.mainRoom {
		oldest := s.ghosts[0]
		s.ghosts = s.ghosts[1:]
		if s.ghost[oldest]--; s.ghost[oldest] == 0 {
			delete(s.ghost, oldest)
		}
	}
}

// leaveMain drops one block; those that were used go round again.
func (s *s3fifo) leaveMain() {
	for {
		block := s.main[0]
		s.main = s.main[1:]
		if s.uses[block] == 0 {
			delete(s.uses, block)
			return
		}
		s.uses[block]--
		s.main = append(s.main, block)
	}
}
