package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// The cycle test of FoundationDB: keys are the nodes of a ring, values name the
// next one. A transaction takes a node out and puts it in again one place further
// on, which changes three links. However many do so at once, in every snapshot, and
// at the end, there is one ring of all nodes.
func TestRingStaysOneRing(t *testing.T) {
	const nodes, clients = 40, 8
	rotations := 400
	if testsize.Reduced() {
		rotations = 100
	}
	e := open(t, unhurried(vfs.NewMem()))
	for i := range nodes {
		put(t, e, key(i), strconv.Itoa((i+1)%nodes), memory)
	}
	var all sync.WaitGroup
	var conflicts atomic.Int64
	for c := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 5))
			for done := 0; done < rotations && !t.Failed(); {
				switch err := rotate(t.Context(), e, rng.IntN(nodes)); {
				case errors.Is(err, kv.ErrConflict), errors.Is(err, kv.ErrVersionGone):
					conflicts.Add(1)
				case !assert.NoError(t, err):
					return
				default:
					if done++; done%10 == 0 && !assert.NoError(t, walkRing(t.Context(), e, nodes)) {
						return
					}
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, walkRing(t.Context(), e, nodes))
	require.Positive(t, conflicts.Load(), "no transaction conflicted: the test shows nothing")
	t.Logf("%d rotations, %d conflicts", clients*rotations, conflicts.Load())
}

// rotate turns r -> a -> b -> c into r -> b -> a -> c.
func rotate(ctx context.Context, e *Engine, r int) error {
	t := kv.Transaction{Batch: new(kv.WriteBatch)}
	chain := []int{r}
	for range 3 {
		node := chain[len(chain)-1]
		l := kv.Lookup{Key: []byte(key(node))}
		at, err := e.LookupAt(ctx, []*kv.Lookup{&l}, 0)
		if err != nil || l.Err != nil {
			return errors.Join(err, l.Err)
		}
		if t.ReadVersion == 0 {
			t.ReadVersion = at // the oldest of them must hold for all
		}
		next, err := strconv.Atoi(string(l.Value))
		if err != nil {
			return fmt.Errorf("link of %d: %w", node, err)
		}
		t.Keys = append(t.Keys, l.Key)
		chain = append(chain, next)
	}
	link := func(from, to int) { t.Batch.Put([]byte(key(from)), []byte(strconv.Itoa(to))) }
	link(chain[0], chain[2])
	link(chain[2], chain[1])
	link(chain[1], chain[3])
	_, err := e.Commit(ctx, &t, memory)
	return err
}

// walkRing follows the links of one snapshot, read by a scan.
func walkRing(ctx context.Context, e *Engine, nodes int) error {
	items, at, err := engineStore{e}.Scan(ctx, kv.PrefixRange([]byte("key-")), kv.ScanOptions{})
	if err != nil {
		return err
	}
	if len(items) != nodes {
		return fmt.Errorf("at version %d there are %d nodes, want %d", at, len(items), nodes)
	}
	node := 0
	for step := 1; ; step++ {
		if node, err = strconv.Atoi(string(items[node].Value)); err != nil {
			return err
		}
		if node == 0 && step == nodes {
			return nil
		}
		if node == 0 || step == nodes {
			return fmt.Errorf("at version %d the ring of node 0 has %d nodes, or has no end; want %d", at, step, nodes)
		}
	}
}
