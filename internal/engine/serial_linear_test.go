package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
)

// casInput and casOutput are one operation of a history with compare-and-set:
// kind 'c' puts the value if the key has version was, or, if was is 0, is absent.
type casInput struct {
	registerInput
	was kv.SeqNum
}

type casOutput struct {
	registerOutput
	failed bool
}

// casModel extends registerModel. It does not believe the order of the versions:
// porcupine looks for one of its own.
var casModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(casInput).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return registerOutput{} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(registerOutput), input.(casInput), output.(casOutput)
		if in.kind != 'c' {
			return registerModel.Step(now, in.registerInput, out.registerOutput)
		}
		holds := now.found && now.version == in.was || !now.found && in.was == 0
		if out.failed {
			// It says what it found instead.
			return !holds && out.found == now.found && (!out.found || out.version == now.version), now
		}
		return holds && out.version > now.version, registerOutput{item{value: in.value, version: out.version}, true}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// compareAndSet is what the CAS of a history asks.
type compareAndSet func(key, value string, was kv.SeqNum) (casOutput, error)

func (r engineRegisters) compareAndSet(key, value string, was kv.SeqNum) (casOutput, error) {
	w := kv.Write{
		Op: kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}, Durability: r.o.Durability,
		If: &kv.Condition{Kind: kv.IfVersion, Version: was},
	}
	if was == 0 {
		w.If = &kv.Condition{Kind: kv.IfAbsent}
	}
	ctx, cancel := context.WithDeadline(context.Background(), testwait.Deadline())
	defer cancel()
	if err := r.e.Write(ctx, []*kv.Write{&w}); err != nil {
		return casOutput{}, err
	}
	if failed, ok := errors.AsType[*kv.ConditionError](w.Err); ok {
		return casOutput{registerOutput{item{version: failed.Version}, failed.Found}, true}, nil
	}
	return casOutput{registerOutput{item{value: value, version: w.Version}, true}, false}, w.Err
}

// casHistory lets clients put, delete, get and compare-and-set a few keys.
func casHistory(t testing.TB, seed uint64, clients, ops, keys int, r registers, cas compareAndSet) []porcupine.Operation {
	t.Helper()
	var all sync.WaitGroup
	begin := time.Now()
	histories := make([][]porcupine.Operation, clients)
	for client := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(client)))
			known := map[string]kv.SeqNum{}
			for i := range ops {
				in := casInput{registerInput: registerInput{kind: "pdgggccccc"[rng.IntN(10)], key: key(rng.IntN(keys))}}
				in.value = fmt.Sprintf("client %d operation %d", client, i)
				call := time.Since(begin)
				var out casOutput
				var err error
				switch in.kind {
				case 'p':
					out.version, err = r.put(in.key, in.value)
				case 'd':
					out.version, err = r.del(in.key)
				case 'g':
					out.item, out.found, err = r.get(in.key)
				default:
					in.was = known[in.key]
					out, err = cas(in.key, in.value, in.was)
				}
				if !assert.NoError(t, err) {
					return
				}
				known[in.key] = out.version
				if in.kind == 'd' {
					known[in.key] = 0
				}
				histories[client] = append(histories[client], porcupine.Operation{
					ClientId: client, Input: in, Output: out, Call: int64(call), Return: int64(time.Since(begin)),
				})
			}
		})
	}
	all.Wait()
	var whole []porcupine.Operation
	for _, h := range histories {
		whole = append(whole, h...)
	}
	return whole
}

func judgeCAS(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(casModel, history, testwait.Left())
}

func TestCompareAndSetIsLinearizable(t *testing.T) {
	histories := uint64(6)
	if testsize.Reduced() {
		histories = 2
	}
	for seed := range histories {
		e := open(t, unhurried(vfs.NewMem()))
		r := engineRegisters{e, []kv.WriteOptions{memory, synced}[seed%2]}
		history := casHistory(t, seed, 16, 125, 6, r, r.compareAndSet)
		require.False(t, t.Failed())
		won, lost := 0, 0
		for _, op := range history {
			if op.Input.(casInput).kind == 'c' {
				if op.Output.(casOutput).failed {
					lost++
				} else {
					won++
				}
			}
		}
		require.Positive(t, won)
		require.Positive(t, lost)
		require.Equal(t, porcupine.Ok, judgeCAS(history), "seed %d", seed)
	}
}

// The checker must reject a compare-and-set that is not atomic.
func TestWrongCompareAndSetIsNotLinearizable(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	r := engineRegisters{e, memory}
	lost := func(key, value string, was kv.SeqNum) (casOutput, error) {
		now, found, err := r.get(key)
		if err != nil || found && now.version != was || !found && was != 0 {
			return casOutput{registerOutput{item{version: now.version}, found}, true}, err
		}
		// The write below overwrites what other clients write in between.
		if _, err := r.put(key, "written in between"); err != nil {
			return casOutput{}, err
		}
		version, err := r.put(key, value)
		return casOutput{registerOutput{item{value: value, version: version}, true}, false}, err
	}
	seed := uint64(0)
	testwait.Until(t, func() bool {
		seed++
		return judgeCAS(casHistory(t, seed, 8, 100, 2, r, lost)) == porcupine.Illegal
	}, "no client wrote in between")
}
