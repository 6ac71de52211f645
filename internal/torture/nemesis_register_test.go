package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/history"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// The cost of porcupine grows fast with the length of a history and with the operations in it
// whose outcome is unknown, so a register is replaced by a new one after some of either.
const (
	registerOps     = 150
	registerUnknown = 5
)

// register is the key that users of one place use now.
type register struct {
	mu                       sync.Mutex
	generation, ops, unknown int
}

// take returns the key for one operation.
func (r *register) take(place int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ops++; r.ops > registerOps || r.unknown >= registerUnknown {
		r.generation++
		r.ops, r.unknown = 1, 0
	}
	return fmt.Sprintf("register-%d-%d", place, r.generation)
}

func (r *register) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown++
}

// A register holds a value; the empty one means that the key is absent.
type (
	registerInput struct {
		kind     byte   // 'p'ut, 'd'elete, 'g'et, or 'c': put if it holds expected
		expected string // of 'c'
		value    string
	}
	registerOutput struct {
		value   string // of 'g'
		held    bool   // of 'c'
		unknown bool
	}
)

var registerModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(registerInput), output.(registerOutput)
		switch in.kind {
		case 'g':
			return out.value == state, state
		case 'c':
			if holds := state == in.expected; !holds {
				return out.unknown || !out.held, state
			}
			return out.unknown || out.held, in.value
		}
		return true, in.value
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// register does something with a register.
func (u *user) register(ctx context.Context) {
	place := u.rng.IntN(len(u.load.registers))
	key := u.load.registers[place].take(place)
	in := registerInput{kind: "ppdggggc"[u.rng.IntN(8)], expected: u.saw[key]}
	if in.kind == 'p' || in.kind == 'c' {
		in.value = fmt.Sprintf("%d of user %d", u.value(), u.number)
	}
	out := registerOutput{held: true}
	call := u.load.now()
	var err error
	switch in.kind {
	case 'g':
		var b []byte
		if b, err = u.db.Get(ctx, []byte(key)); errors.Is(err, kvd.ErrNotFound) {
			err = nil
		}
		out.value = string(b)
	case 'd':
		err = u.db.Delete(ctx, []byte(key))
	case 'p':
		err = u.db.Put(ctx, []byte(key), []byte(in.value))
	default:
		condition := kvd.IfAbsent()
		if in.expected != "" {
			condition = kvd.IfValue([]byte(in.expected))
		}
		err = u.db.Put(ctx, []byte(key), []byte(in.value), condition)
	}
	end := u.load.now()
	switch outcome := u.load.done("register "+string(in.kind), in.kind != 'g', call, err); {
	case outcome == history.Unknown:
		out, end = registerOutput{unknown: true}, math.MaxInt64
		u.load.registers[place].lost()
	case in.kind == 'c' && errors.Is(err, kvd.ErrConflict):
		out.held = false
	case outcome != history.Done:
		return
	case in.kind == 'g':
		u.saw[key] = out.value
	}
	u.registers[key] = append(u.registers[key], porcupine.Operation{ClientId: int(u.number), Input: in, Output: out, Call: call, Return: end})
}

// checkRegisters judges the registers, each with a last read.
func (l *load) checkRegisters(ctx context.Context, db *kvd.Client, registers map[string][]porcupine.Operation) {
	for key, ops := range registers {
		call := l.now()
		b, err := db.Get(ctx, []byte(key))
		if !errors.Is(err, kvd.ErrNotFound) {
			require.NoError(l.t, err)
		}
		ops = append(ops, porcupine.Operation{
			ClientId: len(l.users), Input: registerInput{kind: 'g'}, Output: registerOutput{value: string(b)}, Call: call, Return: l.now(),
		})
		if result := porcupine.CheckOperationsTimeout(registerModel, ops, testwait.Left()); !assert.Equal(l.t, porcupine.Ok, result, key) {
			for _, o := range ops {
				l.t.Logf("%s: user %d, %d to %d: %s", key, o.ClientId, o.Call, o.Return, registerModel.DescribeOperation(o.Input, o.Output))
			}
		}
	}
}

// The oracle finds a lost write, a stale read and a condition that was evaluated on an old value,
// and lets a write without an answer take effect late or never.
func TestRegistersThatAreWrong(t *testing.T) {
	put := func(v string, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: registerInput{kind: 'p', value: v}, Output: registerOutput{unknown: end == math.MaxInt64}, Call: call, Return: end}
	}
	get := func(v string, call int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 1, Input: registerInput{kind: 'g'}, Output: registerOutput{value: v}, Call: call, Return: call + 1}
	}
	swap := func(from, to string, held bool, call int64) porcupine.Operation {
		return porcupine.Operation{
			ClientId: 2, Input: registerInput{kind: 'c', expected: from, value: to}, Output: registerOutput{held: held}, Call: call, Return: call + 1,
		}
	}
	for name, c := range map[string]struct {
		ops  []porcupine.Operation
		want porcupine.CheckResult
	}{
		"right":                   {[]porcupine.Operation{put("a", 0, 1), get("a", 2), swap("a", "b", true, 4), get("b", 6)}, porcupine.Ok},
		"lost":                    {[]porcupine.Operation{put("a", 0, 1), get("", 2)}, porcupine.Illegal},
		"stale":                   {[]porcupine.Operation{put("a", 0, 1), put("b", 2, 3), get("a", 4)}, porcupine.Illegal},
		"a condition on old data": {[]porcupine.Operation{put("a", 0, 1), put("b", 2, 3), swap("a", "c", true, 4)}, porcupine.Illegal},
		"a condition that held":   {[]porcupine.Operation{put("a", 0, 1), swap("a", "c", false, 4)}, porcupine.Illegal},
		"unknown, late":           {[]porcupine.Operation{put("a", 0, math.MaxInt64), get("", 2), get("a", 4)}, porcupine.Ok},
		"unknown, never":          {[]porcupine.Operation{put("a", 0, math.MaxInt64), get("", 2)}, porcupine.Ok},
		"unknown, taken back":     {[]porcupine.Operation{put("a", 0, math.MaxInt64), get("a", 2), get("", 4)}, porcupine.Illegal},
	} {
		require.Equal(t, c.want, porcupine.CheckOperationsTimeout(registerModel, c.ops, testwait.Left()), name)
	}
}
