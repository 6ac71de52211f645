package torture

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// chosenFaults are those whose name contains NEMESIS_FAULTS, and which are possible here.
func chosenFaults(t *testing.T) []fault {
	t.Helper()
	chosen := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !strings.Contains(f.name, os.Getenv("NEMESIS_FAULTS")) || f.disk && os.Getenv("NEMESIS_DISK") == ""
	})
	require.NotEmpty(t, chosen, "NEMESIS_FAULTS")
	return chosen
}

// nemesisSettings are those of the environment: how long faults go on, 0 for each of them once;
// and how many nodes there are.
func nemesisSettings(t *testing.T) (lasts time.Duration, size int) {
	t.Helper()
	size = 3
	var err error
	if s := os.Getenv("NEMESIS"); s != "" {
		lasts, err = time.ParseDuration(s)
		require.NoError(t, err, "NEMESIS")
	}
	if s := os.Getenv("NEMESIS_NODES"); s != "" {
		size, err = strconv.Atoi(s)
		require.NoError(t, err, "NEMESIS_NODES")
		require.Contains(t, []int{3, 5}, size, "NEMESIS_NODES")
	}
	return lasts, size
}

// trial is one run of a cluster under faults.
type trial struct {
	*nodes
	load     *load
	rng      *rand.Rand
	operator *kvd.Client

	// By name of the fault.
	done    map[string]int
	unknown map[string]int             // writes without a known outcome
	lulls   map[string][]time.Duration // the longest time without an acknowledged write
}

// A fault befalls the nodes and ends: afterwards all of them run, and all links carry.
type fault struct {
	name string
	do   func(*trial)
	// lull says that the cluster is expected to choose another leader and go on meanwhile.
	lull bool
	// disk says that a node needs a small file system of its own: see nemesis_disk_test.go.
	disk bool
}

var faults = []fault{
	{name: "kill the leader", do: func(r *trial) { r.whileKilled(r.leader()) }, lull: true},
	{name: "kill a follower", do: func(r *trial) { r.whileKilled(r.follower()) }},
	{name: "kill a majority", do: func(r *trial) { r.killAndStart(r.majority()...) }},
	{name: "kill all", do: func(r *trial) { r.killAndStart(r.all...) }},
	{name: "pause the leader", do: func(r *trial) { r.whilePaused(r.leader()) }, lull: true},
	{name: "pause a follower", do: func(r *trial) { r.whilePaused(r.follower()) }},
	{name: "pause a majority", do: func(r *trial) {
		paused := r.majority()
		for _, n := range paused {
			r.pause(n)
		}
		r.sometime(3 * time.Second)
		for _, n := range paused {
			r.resume(n)
		}
	}},
	{name: "cut the leader off", do: func(r *trial) { r.isolate(r.leader(), r.kindOfCut()); r.advance() }, lull: true},
	{name: "cut a follower off", do: func(r *trial) { r.isolate(r.follower(), r.kindOfCut()); r.advance() }},
	{name: "cut the leader from a follower", do: func(r *trial) {
		leader := r.leader()
		r.cut(leader, r.oneOf(r.others(leader)), true, r.kindOfCut())
		r.advance()
	}},
	{name: "a follower hears the leader, and is not heard", do: func(r *trial) {
		leader := r.leader()
		r.cut(r.oneOf(r.others(leader)), leader, false, r.kindOfCut())
		r.advance()
	}},
	{name: "the leader hears the others, and is not heard", do: func(r *trial) {
		leader, kind := r.leader(), r.kindOfCut()
		for _, other := range r.others(leader) {
			r.cut(leader, other, false, kind)
		}
		r.advance()
	}, lull: true},
	{name: "the others hear the leader, and are not heard", do: func(r *trial) {
		leader, kind := r.leader(), r.kindOfCut()
		for _, other := range r.others(leader) {
			r.cut(other, leader, false, kind)
		}
		r.advance()
	}, lull: true},
	{name: "cut all from each other", do: func(r *trial) {
		for _, n := range r.all {
			r.isolate(n, r.kindOfCut())
		}
		r.sometime(3 * time.Second)
	}},
	{name: "stop the leader", do: func(r *trial) { // as for an upgrade: another node leads first
		leader := r.leader()
		r.stop(leader)
		if said := notHandedOver.FindString(r.ended[len(r.ended)-1]); said != "" {
			r.done["(leadership that was not handed over)"]++
			r.t.Log(said)
		}
		r.advance()
		r.start(leader)
	}, lull: true},
	{name: "kill and start again and again", do: func(r *trial) {
		for range 2 * len(r.all) {
			n := r.oneOf(r.all)
			r.sometime(300 * time.Millisecond)
			r.kill(n)
			r.sometime(100 * time.Millisecond)
			r.start(n)
		}
	}},
	{name: "start a node without its data", do: func(r *trial) { r.whileWiped(r.follower()) }},
	{name: "flip a bit in the log of a node", do: func(r *trial) { r.whileFlipped(r.follower()) }},
	{name: "kill a node that is cut off", do: func(r *trial) {
		n := r.oneOf(r.all)
		r.isolate(n, r.kindOfCut())
		r.sometime(time.Second)
		r.killAndStart(n)
		r.advance()
	}},
	{name: "transfer the leadership", do: (*trial).transfer, lull: true},
	{name: "add a node, and remove it", do: (*trial).whileJoined},
	{name: "replace a node that has lost its data", do: func(r *trial) { r.replace(r.follower()) }},
	{name: "replace the leader, which has lost its data", do: func(r *trial) { r.replace(r.leader()) }, lull: true},
	{name: "fill the disk of a node", do: (*trial).whileFull, disk: true},
}

var notHandedOver = regexp.MustCompile(`.*the leadership was not handed over.*`)

func (r *trial) oneOf(which []*node) *node { return which[r.rng.IntN(len(which))] }

func (r *trial) follower() *node { return r.oneOf(r.others(r.leader())) }

// majority returns the leader and as many others as make a majority.
func (r *trial) majority() []*node {
	leader := r.leader()
	others := r.others(leader)
	r.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return append(others[:len(r.all)/2], leader)
}

// kindOfCut chooses whether what is sent meanwhile arrives late or never.
func (r *trial) kindOfCut() linkState { return []linkState{holds, refuses}[r.rng.IntN(2)] }

// sometime waits: the moment of what follows is meant to be arbitrary.
func (r *trial) sometime(most time.Duration) { time.Sleep(time.Duration(r.rng.Int64N(int64(most)))) }

// advance waits until more writes have been acknowledged.
func (r *trial) advance() {
	r.t.Helper()
	more := r.load.acknowledged() + 3*len(r.load.users)
	testwait.Until(r.t, func() bool { return r.load.acknowledged() >= more || r.t.Failed() }, "writes go on")
}

func (r *trial) whileKilled(n *node) {
	r.kill(n)
	r.advance()
	r.start(n)
}

func (r *trial) whilePaused(n *node) {
	r.pause(n)
	r.advance()
	r.sometime(time.Second)
	r.resume(n)
}

func (r *trial) killAndStart(which ...*node) {
	r.kill(which...)
	r.sometime(500 * time.Millisecond)
	r.start(which...)
}

// befall lets one fault happen, and waits until the cluster goes on.
func (r *trial) befall(f *fault) {
	r.leader()
	r.sometime(100 * time.Millisecond)
	r.load.lull()
	began := time.Now()
	f.do(r)
	r.heal()
	r.advance()
	r.done[f.name]++
	longest, slowest, unknown := r.load.lull()
	r.unknown[f.name] += unknown
	if f.lull {
		r.lulls[f.name] = append(r.lulls[f.name], longest)
	}
	r.t.Logf("%s: %.1f s, no write for %.2f s, slowest operation %.2f s, %d outcomes unknown",
		f.name, time.Since(began).Seconds(), longest.Seconds(), slowest.Seconds(), unknown)
}

// agree compares all nodes with each other, once no more is written.
func (r *trial) agree() {
	r.t.Helper()
	var want string
	for _, n := range r.all {
		db := r.open(r.t, []*node{n}, kvd.WithTimeout(testwait.Left()))
		var digest inspect.Digest
		require.NoError(r.t, db.View(context.Background(), func(s *kvd.Snapshot) error {
			digest = inspect.Digest{}
			for item, err := range s.Scan(context.Background(), kvd.All()) {
				if err != nil {
					return err
				}
				digest.Add(item.Key, item.Value)
				digest.Add(item.Key, strconv.AppendUint(nil, item.Version, 10))
			}
			return nil
		}))
		require.NoError(r.t, db.Close())
		got := fmt.Sprintf("%s %d", digest.String(), digest.Count())
		if want == "" {
			want = got
		}
		require.Equal(r.t, want, got, "node %d differs from node 1", n.id)
	}
	r.t.Logf("all nodes have the digest %s", want)
}

// Real processes replicate, and are killed, paused, stopped and cut off from each other, while
// many clients read and write. No acknowledged write is lost, no answer is one that a single store
// could not have given, and in the end all nodes hold the same. See nemesis_load_test.go for what
// is judged.
func TestNemesis(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	lasts, size := nemesisSettings(t)
	chosen := chosenFaults(t)
	if testing.Short() && lasts == 0 {
		t.Skip("seconds of real processes")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d nodes", seed, size)
	r := &trial{
		nodes: makeNodes(t, size, "--memory", "64MiB", "--flush-keys", "2000", "--low-disk", lowDisk),
		rng:   rand.New(rand.NewPCG(seed, 0)), done: map[string]int{}, unknown: map[string]int{}, lulls: map[string][]time.Duration{},
	}
	r.start(r.all...)
	users, pause := 8, 5*time.Millisecond
	if lasts > 0 {
		users = 16
	}
	r.operator = r.open(t, r.all, kvd.WithTimeout(testwait.Left()))
	r.load = beginLoad(t, r.nodes, users, pause, seed)
	begun := time.Now()
	for round := 0; round == 0 || time.Since(begun) < lasts; round++ {
		for _, i := range r.rng.Perm(len(chosen)) {
			if round > 0 && time.Since(begun) >= lasts || t.Failed() {
				break
			}
			r.befall(&chosen[i])
		}
	}
	took := time.Since(begun)
	r.load.end()
	db := r.open(t, r.all, kvd.WithTimeout(testwait.Left()))
	report := r.load.check(context.Background(), db)
	require.NoError(t, db.Close())
	r.agree()
	r.load.close()
	require.NoError(t, r.operator.Close())
	r.stop(r.others(r.all[0])...)
	r.stop(r.all[0])
	r.print(took, report.String())
	require.Zero(t, report.Count)
	for _, f := range chosen {
		assert.Positive(t, r.done[f.name], f.name)
	}
}

var digits = regexp.MustCompile(`\d+`)

// print tells what happened.
func (r *trial) print(took time.Duration, report string) {
	l := r.load
	operations, unknown := 0, 0
	errs := map[string]int{}
	for text, n := range l.errorsSeen() {
		errs[digits.ReplaceAllString(text, "N")] += n
		if strings.Contains(text, kvd.ErrUncertain.Error()) {
			unknown += n
		}
	}
	for _, n := range l.ops {
		operations += n
	}
	fmt.Printf("nemesis: %d nodes, %d clients, %.0f s: %d operations, %d writes acknowledged, %d without a known outcome, %d terms\n",
		len(r.all), len(l.users), took.Seconds(), operations, l.acks, unknown, r.terms())
	for _, what := range slices.Sorted(maps.Keys(r.done)) {
		text := fmt.Sprintf(", outcomes unknown: %d", r.unknown[what])
		if lulls := r.lulls[what]; len(lulls) > 0 {
			slices.Sort(lulls)
			text += fmt.Sprintf(", longest time without an acknowledged write: median %.2f s, at most %.2f s", lulls[len(lulls)/2].Seconds(), lulls[len(lulls)-1].Seconds())
		}
		fmt.Printf("nemesis: %3d times: %s%s\n", r.done[what], what, text)
	}
	texts := slices.SortedFunc(maps.Keys(errs), func(a, b string) int { return cmp.Compare(errs[b], errs[a]) })
	for _, text := range texts[:min(len(texts), 25)] {
		fmt.Printf("nemesis: %5d times a client got: %s\n", errs[text], text)
	}
	fmt.Printf("nemesis: %s\n", report)
}
