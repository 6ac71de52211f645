// Command hitratio replays streams of point reads against the cache of kvd's sorted
// files and against other cache policies, and prints the share of the reads that each
// of them serves from memory.
//
// kvd is tested with a real file and a real cache. The other policies get the number of
// the block that a read needs, and have room for as many blocks as kvd's cache. Nothing
// is timed: a miss costs far more than the work of any policy for a hit, so only the
// number of misses matters.
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
)

const (
	keys  = 1_000_000 // some 32,000 blocks of 4 KiB
	reads = 2_000_000 // of each stream; the first half warms the caches and is not counted
	every = 200_000   // reads between two scans, or two shifts of the hot keys
)

func main() {
	if err := run(os.Stdout, keys, reads, every); err != nil {
		fmt.Fprintln(os.Stderr, "hitratio:", err)
		os.Exit(1)
	}
}

// run prints a line per stream and size, with a ratio per cache.
func run(out io.Writer, keys, reads, every int) error {
	t, err := newTable(keys)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-22s %5s %6s", "reads", "cache", "kvd")
	for _, p := range policies {
		fmt.Fprintf(out, " %8s", p.name)
	}
	fmt.Fprintln(out)
	for _, s := range streams {
		steps := s.steps(keys, reads, every, rand.New(rand.NewPCG(1, 1)))
		for _, percent := range []int{1, 10, 25} {
			blocks := t.blocks * percent / 100
			ratio, err := t.replay(steps, blocks)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%-22s %4d%% %6.3f", s.name, percent, ratio)
			for _, p := range policies {
				fmt.Fprintf(out, " %8.3f", replay(p.make(blocks), steps, t))
			}
			fmt.Fprintln(out)
		}
	}
	return nil
}

// replay returns the share of the counted reads whose block the cache had.
func replay(c cache, steps []step, t *table) float64 {
	hits, counted := 0, 0
	for i, s := range steps {
		if s.scan {
			for b := range t.blocks {
				c.use(b)
			}
			continue
		}
		hit := c.use(int(t.blockOf[s.key]))
		if i < len(steps)/2 {
			continue
		}
		counted++
		if hit {
			hits++
		}
	}
	return float64(hits) / float64(counted)
}
