package frame

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

var requests = map[string]Request{
	"empty": {},
	"gets":  {Ops: []Op{{Tag: 1, Kind: Get, Key: []byte("a")}, {Kind: Get, Key: []byte("b"), TimeoutMillis: 5000}}},
	"writes": {Ops: []Op{
		{Tag: math.MaxUint64, Kind: Put, Key: []byte("k"), Value: []byte("v"), Options: Options{Durability: kvdpb.Durability_DURABILITY_SYNC}, TimeoutMillis: math.MaxUint32},
		{Tag: 7, Kind: Put, Key: []byte("k")},
		{Tag: 8, Kind: Delete, Key: []byte("k"), Options: Options{Durability: kvdpb.Durability_DURABILITY_MEMORY}},
	}},
	"large":       {Ops: []Op{{Kind: Put, Key: bytes.Repeat([]byte{1}, 5000), Value: make([]byte, 1<<20)}}},
	"at versions": {Ops: []Op{{Kind: Get, Key: []byte("a"), AtVersion: 7}, {Kind: Get, Key: []byte("a"), AtVersion: 7, Epoch: math.MaxUint64}, {Kind: Get, Key: []byte("a"), AtVersion: math.MaxUint64}}},
	"conditions": {Ops: []Op{
		{Kind: Put, Key: []byte("k"), Condition: Condition{Kind: MustExist}, ReturnPrevious: true},
		{Kind: Put, Key: []byte("k"), Condition: Condition{Kind: MustNotExist}, TTLMillis: 60_000},
		{Kind: Put, Key: []byte("k"), Condition: Condition{Kind: VersionEquals}},
		{Kind: Delete, Key: []byte("k"), Condition: Condition{Kind: VersionEquals, Version: math.MaxUint64}, ReturnPrevious: true},
		{Kind: Delete, Key: []byte("k"), Condition: Condition{Kind: ValueEquals}},
		{Kind: Delete, Key: []byte("k"), Condition: Condition{Kind: ValueEquals, Value: []byte("old")}},
	}},
	"names": {Ops: []Op{
		{Kind: Put, Key: []byte("k"), Options: Options{ClientID: 1, Sequence: 1}},
		{Kind: Delete, Key: []byte("k"), Options: Options{ClientID: math.MaxUint64, Sequence: math.MaxUint64, Retried: true, KnownVersion: 1 << 55}},
		{Kind: Put, Key: []byte("k"), Options: Options{Retried: true}},
	}},
	"everything": {Ops: []Op{{
		Tag: math.MaxUint64, Kind: Put, TimeoutMillis: math.MaxUint32, Key: make([]byte, 70<<10),
		Value: make([]byte, 3<<20), TTLMillis: math.MaxUint64, ReturnPrevious: true,
		Condition: Condition{Kind: ValueEquals, Value: make([]byte, 3<<20)},
		Options: Options{
			Durability: kvdpb.Durability_DURABILITY_SYNC,
			ClientID:   math.MaxUint64, Sequence: math.MaxUint64, Retried: true, KnownVersion: math.MaxUint64,
		},
	}}},
	"no keys": {Ops: []Op{{Kind: Get}, {Kind: Put}, {Kind: Delete}}},
}

var responses = map[string]Response{
	"empty":      {},
	"going away": {GoingAway: true},
	"results": {Results: []Result{
		{Tag: 1, Kind: Get, Value: []byte("v"), ItemVersion: 3, Version: 1 << 55},
		{Kind: Get},
		{Tag: 2, Kind: Put, Version: 4},
		{Tag: 3, Kind: Delete},
		{Tag: 4, Code: 5, Reason: kvdpb.ReasonKeyNotFound, Version: 9},
		{Tag: 5, Code: 8, Reason: kvdpb.ReasonOverloaded, Message: "später", RetryAfterMillis: 50},
	}},
	"previous": {Results: []Result{
		{Tag: 1, Kind: Get, Value: []byte("v"), ItemVersion: 3, TTLMillis: 60_000, Version: 9},
		{Tag: 2, Kind: Put, HasPrevious: true, Version: 9},
		{Tag: 3, Kind: Put, HasPrevious: true, Value: []byte("old"), ItemVersion: 3, TTLMillis: math.MaxUint64, Version: 9},
		{Tag: 4, Kind: Delete, HasPrevious: true, Value: []byte("old"), ItemVersion: 3, Version: 9, Deduplicated: true},
		{Tag: 5, Kind: Put, Version: 9, Deduplicated: true},
	}},
	"large": {Results: []Result{{Kind: Get, Value: make([]byte, 1<<20)}}},
}

// The generated code and this package decode what the other encodes.
func TestFramesAreWhatTheGeneratedCodeMakes(t *testing.T) {
	for name, r := range requests {
		t.Run("request "+name, func(t *testing.T) {
			encoded := r.Encode()
			data := encoded.data.Materialize()
			var generated kvdpb.PipelineRequest
			require.NoError(t, proto.Unmarshal(data, &generated))
			if diff := compareRequest(&r, &generated); diff != "" {
				t.Fatal(diff)
			}
			again, err := proto.Marshal(&generated)
			require.NoError(t, err)
			assert.Len(t, again, len(data), "the same fields, perhaps in another order")

			var decoded Request
			require.NoError(t, decoded.decode(again))
			if diff := compareRequest(&decoded, &generated); diff != "" {
				t.Fatal(diff)
			}
		})
	}
	for name, r := range responses {
		t.Run("response "+name, func(t *testing.T) {
			encoded, err := Codec().Marshal(&r)
			require.NoError(t, err)
			data := encoded.Materialize()
			var generated kvdpb.PipelineResponse
			require.NoError(t, proto.Unmarshal(data, &generated))
			if diff := compareResponse(&r, &generated); diff != "" {
				t.Fatal(diff)
			}
			again, err := proto.Marshal(&generated)
			require.NoError(t, err)
			assert.Len(t, again, len(data), "the same fields, perhaps in another order")

			var decoded Response
			require.NoError(t, decoded.decode(again))
			if diff := compareResponse(&decoded, &generated); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestSizeBoundIsOne(t *testing.T) {
	for name, r := range requests {
		bound := 0
		for i := range r.Ops {
			bound += r.Ops[i].SizeBound()
		}
		assert.LessOrEqual(t, r.size(), bound, name)
	}
}

func TestAFrameHasAtMostMaxOps(t *testing.T) {
	r := Request{Ops: make([]Op, MaxOps)}
	for i := range r.Ops {
		r.Ops[i].Kind = Get
	}
	full := r.Encode().data.Materialize()
	var decoded Request
	require.NoError(t, decoded.decode(full))
	assert.Len(t, decoded.Ops, MaxOps)
	r.Ops = append(r.Ops, Op{Kind: Get})
	require.ErrorContains(t, decoded.decode(r.Encode().data.Materialize()), "more than 1024 operations")
}

func TestCodecLeavesOtherMessagesToProtobuf(t *testing.T) {
	data, err := Codec().Marshal(&kvdpb.GetRequest{Key: []byte("a")})
	require.NoError(t, err)
	var r kvdpb.GetRequest
	require.NoError(t, Codec().Unmarshal(data, &r))
	assert.Equal(t, "a", string(r.Key))
	assert.Equal(t, "proto", Codec().Name())
}

func TestADecodedFrameIsUsedAgain(t *testing.T) {
	var r Request
	for _, name := range []string{"everything", "writes", "names", "gets", "conditions", "large", "empty"} {
		want := requests[name]
		require.NoError(t, Codec().Unmarshal(want.Encode().data, &r))
		require.Len(t, r.Ops, len(want.Ops), name)
		for i := range want.Ops {
			assert.Equal(t, string(want.Ops[i].Key), string(r.Ops[i].Key))
			assert.Equal(t, want.Ops[i].Options, r.Ops[i].Options)
			assert.Equal(t, want.Ops[i].Condition.Kind, r.Ops[i].Condition.Kind)
			assert.Equal(t, want.Ops[i].TTLMillis, r.Ops[i].TTLMillis)
		}
		assert.Equal(t, want.size(), r.Bytes())
	}
	r.Release()
	assert.Zero(t, r.Bytes())
	assert.Empty(t, r.Ops)
}

// A precondition with must_exist false requires nothing, and the last member of a oneof
// wins.
func TestAConditionThatAsksNothing(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		want Condition
	}{
		"none":                             {"", Condition{}},
		"must exist":                       {"\x08\x01", Condition{Kind: MustExist}},
		"false":                            {"\x08\x00", Condition{}},
		"false wins":                       {"\x18\x07\x10\x00", Condition{}},
		"version wins":                     {"\x22\x01v\x18\x07", Condition{Kind: VersionEquals, Version: 7}},
		"value wins":                       {"\x18\x07\x22\x00", Condition{Kind: ValueEquals, Value: []byte{}}},
		"another wire type":                {"\x09\x01\x00\x00\x00\x00\x00\x00\x00", Condition{Kind: UnknownCondition}},
		"a newer field":                    {"\x28\x01", Condition{Kind: UnknownCondition}},
		"a newer field before a known one": {"\x28\x01\x08\x01", Condition{Kind: UnknownCondition}},
		"a newer field after a known one":  {"\x08\x01\x28\x01", Condition{Kind: UnknownCondition}},
	} {
		var c Condition
		require.NoError(t, c.decode([]byte(test.data)), name)
		assert.Equal(t, test.want, c, name)
	}
}

// Unused fields cost neither bytes nor allocations.
func TestFramesAreDecodedWithoutAllocation(t *testing.T) {
	for name, want := range requests {
		data := want.Encode().data.Materialize()
		var r Request
		require.NoError(t, r.decode(data))
		assert.Zero(t, testing.AllocsPerRun(10, func() { _ = r.decode(data) }), name)
		assert.Zero(t, testing.AllocsPerRun(10, func() { want.size() }), name)
	}
	plain := Request{Ops: []Op{{Tag: 1, Kind: Put, Key: []byte("k"), Value: []byte("v")}}}
	assert.Equal(t, "\x0a\x0c\x08\x01\x1a\x08\x0a\x06\x0a\x01k\x12\x01v", string(plain.Encode().data.Materialize()))
}

func TestAbandonKeepsTheMemoryOfAFrame(t *testing.T) {
	var r Request
	want := requests["writes"]
	require.NoError(t, Codec().Unmarshal(want.Encode().data, &r))
	key := r.Ops[0].Key
	r.Abandon()
	other := requests["large"]
	require.NoError(t, Codec().Unmarshal(other.Encode().data, &r))
	assert.Equal(t, "k", string(key))
}

// The generated code and this package agree on every input: both reject it, or both
// decode the same.
func FuzzRequest(f *testing.F) {
	for _, r := range requests {
		f.Add(r.Encode().data.Materialize())
	}
	f.Add([]byte("\x0a\x06\x12\x02\x0a\x00\x1a\x00"))         // two members of a oneof
	f.Add([]byte("\x08\x01\x0a\x02\x0b\x0c"))                 // groups, other wire types
	f.Add([]byte("\x0a\x08\x1a\x06\x12\x04\x08\x00\x18\x00")) // two members of a condition
	f.Add([]byte("\x12\x01a\x12\x01b\x0a\x02\x08\x01"))       // compact frames, and an operation
	f.Add([]byte("\xbd\xbd\xbd\xbd00000"))                    // a field number out of range: found
	f.Fuzz(func(t *testing.T, data []byte) {
		var generated kvdpb.PipelineRequest
		var decoded Request
		protoErr, err := proto.Unmarshal(data, &generated), decoded.decode(data)
		if err != nil && strings.Contains(err.Error(), "operations") {
			require.NoError(t, protoErr)
			require.Greater(t, len(generated.Ops), MaxOps)
			return
		}
		require.Equal(t, protoErr == nil, err == nil, "%v; %v", protoErr, err)
		if err != nil {
			return
		}
		if len(generated.Frame) > 0 { // see FuzzCompactRequest
			require.True(t, decoded.Compact)
			return
		}
		if diff := compareRequest(&decoded, &generated); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzResponse(f *testing.F) {
	for _, r := range responses {
		f.Add(mem.BufferSlice(encode(r.size(), r.append, Buffers)).Materialize())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var generated kvdpb.PipelineResponse
		var decoded Response
		protoErr, err := proto.Unmarshal(data, &generated), decoded.decode(data)
		if protoErr == nil && len(generated.Frame) > 0 { // see FuzzCompactResponse
			require.True(t, decoded.Compact || err != nil)
			return
		}
		require.Equal(t, protoErr == nil, err == nil, "%v; %v", protoErr, err)
		if err != nil {
			return
		}
		if diff := compareResponse(&decoded, &generated); diff != "" {
			t.Fatal(diff)
		}
	})
}
