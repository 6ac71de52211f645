package frame

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

var update = flag.Bool("update", false, "write the golden files of the compact format anew")

// compactRequest is a request frame as given to a Builder.
type compactRequest struct {
	kind   FrameKind
	header Header
	ops    []Op
}

var compactRequests = map[string]compactRequest{
	"read": {ReadFrame, Header{}, []Op{{Kind: Get, Key: []byte("a")}}},
	"reads": {ReadFrame, Header{ID: 7, TimeoutMillis: 5000, Timed: true}, []Op{
		{Kind: Get, Key: []byte("a")},
		{Kind: Get, Key: []byte("b"), TimeoutMillis: math.MaxUint32, AtVersion: math.MaxUint64},
		{Kind: Get, Key: bytes.Repeat([]byte{1}, 300), Skipped: true},
	}},
	"reads at one version": {ReadFrame, Header{ID: math.MaxUint32, OneVersion: true}, []Op{{Kind: Get, Key: []byte("a")}, {Kind: Get, Key: []byte("b")}}},
	"reads at an epoch": {ReadFrame, Header{ID: 8}, []Op{
		{Kind: Get, Key: []byte("a"), AtVersion: 300, Epoch: 1<<63 | 2},
		{Kind: Get, Key: []byte("b"), AtVersion: 1, Epoch: 3, TimeoutMillis: 9},
	}},
	"write": {WriteFrame, Header{ID: 1}, []Op{{Kind: Put, Key: []byte("k"), Value: []byte("v")}}},
	"writes": {WriteFrame, Header{ID: 2, TimeoutMillis: math.MaxUint32, Durability: kvdpb.Durability_DURABILITY_SYNC}, []Op{
		{Kind: Put, Key: []byte("k")},
		{Kind: Put, Key: []byte("k"), Value: make([]byte, 300), TTLMillis: math.MaxUint64, TimeoutMillis: 1},
		{Kind: Delete, Key: []byte("k")},
		{Kind: Put, Key: []byte("k"), Value: []byte("v"), Skipped: true},
		{Kind: Delete, Key: []byte("k"), Skipped: true},
	}},
	"conditions": {WriteFrame, Header{ID: 3, Durability: kvdpb.Durability_DURABILITY_MEMORY}, []Op{
		{Kind: Put, Key: []byte("k"), Condition: Condition{Kind: MustExist}, ReturnPrevious: true},
		{Kind: Delete, Key: []byte("k"), Condition: Condition{Kind: MustNotExist}},
		{Kind: Put, Key: []byte("k"), Condition: Condition{Kind: VersionEquals, Version: math.MaxUint64}},
		{Kind: Delete, Key: []byte("k"), Condition: Condition{Kind: ValueEquals, Value: []byte("old")}, ReturnPrevious: true},
		{Kind: Delete, Key: []byte("k"), Condition: Condition{Kind: ValueEquals}},
	}},
	"names": {WriteFrame, Header{ID: 4}, []Op{
		{Kind: Put, Key: []byte("k")},
		{Kind: Put, Key: []byte("k"), Options: Options{ClientID: math.MaxUint64, Sequence: 1000}},
		{Kind: Delete, Key: []byte("k"), Options: Options{ClientID: math.MaxUint64, Sequence: 1001, Retried: true, KnownVersion: 1 << 55}},
		{Kind: Put, Key: []byte("k"), Options: Options{ClientID: math.MaxUint64, Sequence: 999}},
		{Kind: Put, Key: []byte("k"), Options: Options{Retried: true}},
	}},
	"call": {CallFrame, Header{ID: 1}, []Op{{Kind: Call, Method: MethodBeginSnapshot}}},
	"calls": {CallFrame, Header{ID: 9, TimeoutMillis: 5000}, []Op{
		{Kind: Call, Method: MethodWrite, Value: []byte("write")},
		{Kind: Call, Method: MethodCommit, Value: make([]byte, 300), TimeoutMillis: math.MaxUint32},
		{Kind: Call, Method: MethodExecute, Value: []byte("execute"), Skipped: true},
		{Kind: Call, Method: MethodBeginSnapshot},
		{Kind: Call, Method: MethodKeepSnapshot, Value: []byte{8, 1}, TimeoutMillis: 1, Skipped: true},
		{Kind: Call, Method: MethodReleaseSnapshot, Value: []byte{8, 1}},
	}},
}

var compactResponses = map[string]Response{
	"read": {ID: 1, Results: []Result{{HasPrevious: true, Value: []byte("v"), ItemVersion: 3, Version: 9}}},
	"results": {ID: 7, Results: []Result{
		{Tag: 1, HasPrevious: true, Value: []byte("v"), ItemVersion: 3, Version: math.MaxUint64, TTLMillis: 60_000},
		{Tag: 2, Version: 4},
		{Tag: 3, Version: 4, Deduplicated: true},
		{Tag: 4, Version: 4, Deduplicated: true, HasPrevious: true, Value: []byte{}},
		{Tag: 5, Code: 5, Reason: kvdpb.ReasonKeyNotFound, Version: 9},
		{Tag: 6, Code: 8, Reason: kvdpb.ReasonOverloaded, Message: "später", RetryAfterMillis: math.MaxUint32},
		{Tag: 7, Code: 9, Reason: kvdpb.ReasonConditionFailed, Version: 1 << 55},
		{Tag: 8, Skipped: true},
	}},
	"sparse": {ID: math.MaxUint32, Timings: []uint64{1 << 40, 17}, Results: []Result{
		{Tag: 2, Version: 1}, {Tag: 3, Version: 1}, {Tag: 1023, Version: 1},
	}},
	"timed":      {ID: 8, Timings: []uint64{200}, Results: []Result{{Version: 1}}},
	"going away": {GoingAway: true},
	"refused":    {Refused: true, Results: []Result{{Code: 3, Reason: kvdpb.ReasonInvalidRequest, Message: "malformed frame"}}},
	"calls": {ID: 9, Results: []Result{
		{HasPrevious: true, Value: []byte("answer"), Version: 1 << 55},
		{Tag: 1, Code: 9, Reason: kvdpb.ReasonVersionGone, Message: "gone", Version: 7, Details: []Detail{{"cause", "OPENING"}, {"key", ""}}},
		{Tag: 2, Code: 5, Reason: "OTHER", Details: []Detail{{"", "x"}}},
	}},
	"large": {Results: []Result{{HasPrevious: true, Value: make([]byte, 300)}}},
}

func (r *compactRequest) build(b *Builder) []byte {
	b.Reset(r.kind)
	for i := range r.ops {
		b.Add(&r.ops[i])
	}
	return slices.Clone(b.Finish(r.header))
}

// want returns the request that the server decodes.
func (r *compactRequest) want() Request {
	want := Request{Compact: true, ID: r.header.ID, Timed: r.header.Timed, OneVersion: r.header.OneVersion}
	for i, op := range r.ops {
		op.Tag, op.Durability = uint64(i), r.header.Durability
		if op.TimeoutMillis == 0 {
			op.TimeoutMillis = r.header.TimeoutMillis
		}
		want.Ops = append(want.Ops, op)
	}
	return want
}

func requireSameRequest(t *testing.T, want, got *Request) {
	t.Helper()
	require.Len(t, got.Ops, len(want.Ops))
	for i, op := range got.Ops {
		w := want.Ops[i]
		for _, b := range []*[]byte{&op.Value, &op.Condition.Value, &w.Value, &w.Condition.Value} {
			nilIfEmpty(b)
		}
		require.Equal(t, w, op, "operation %d", i)
	}
	require.Equal(t, want.Compact, got.Compact)
	require.Equal(t, want.ID, got.ID)
	require.Equal(t, want.Timed, got.Timed)
	require.Equal(t, want.OneVersion, got.OneVersion)
	require.Equal(t, want.Malformed, got.Malformed)
}

func requireSameResponse(t *testing.T, want, got *Response) {
	t.Helper()
	require.Len(t, got.Results, len(want.Results))
	for i, result := range got.Results {
		w := want.Results[i]
		nilIfEmpty(&result.Value)
		nilIfEmpty(&w.Value)
		require.Equal(t, w, result, "result %d", i)
	}
	require.True(t, got.Compact)
	require.Equal(t, want.ID, got.ID)
	require.Equal(t, want.GoingAway, got.GoingAway)
	require.Equal(t, want.Refused, got.Refused)
	require.Equal(t, append([]uint64{}, want.Timings...), append([]uint64{}, got.Timings...))
}

// compactFrames returns all examples, encoded.
func compactFrames() map[string][]byte {
	frames := map[string][]byte{}
	var b Builder
	for name, r := range compactRequests {
		frames["request "+name] = r.build(&b)
	}
	for name, r := range compactResponses {
		frames["response "+name] = r.AppendCompact(nil)
	}
	return frames
}

func TestCompactRequestsAreReadAsTheyWereBuilt(t *testing.T) {
	var b Builder
	var used Request
	for name, r := range compactRequests {
		t.Run(name, func(t *testing.T) {
			data := r.build(&b)
			assert.LessOrEqual(t, len(data), b.Len())
			assert.Equal(t, len(r.ops), b.Count())
			n, err := frameLength(data[:4], len(data))
			require.NoError(t, err)
			require.Equal(t, len(data), n)
			want := r.want()
			require.NoError(t, used.DecodeCompact(data))
			requireSameRequest(t, &want, &used)
		})
	}
}

func TestCompactResponsesAreReadAsTheyWereWritten(t *testing.T) {
	var used Response
	for name, r := range compactResponses {
		t.Run(name, func(t *testing.T) {
			data := r.AppendCompact([]byte("before"))
			require.Equal(t, "before", string(data[:6]))
			assert.LessOrEqual(t, len(data)-6, r.SizeBound())
			require.NoError(t, used.DecodeCompact(data[6:]))
			requireSameResponse(t, &r, &used)
		})
	}
}

// The frames of each version have exactly these bytes.
func TestGoldenFrames(t *testing.T) {
	for _, dir := range []string{"testdata/v1", "testdata/v3"} {
		frames := compactFrames()
		maps.DeleteFunc(frames, func(name string, _ []byte) bool { return strings.Contains(name, " call") != (dir == "testdata/v3") })
		if *update {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			for name, data := range frames {
				require.NoError(t, os.WriteFile(goldenPath(dir, name), []byte(hex.Dump(data)), 0o644))
			}
		}
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, len(frames))
		for name, data := range frames {
			dump, err := os.ReadFile(goldenPath(dir, name))
			require.NoError(t, err)
			require.Equal(t, string(dump), hex.Dump(data), name)
		}
	}
}

func goldenPath(dir, name string) string {
	return filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".hex")
}

// The example of the package comment, byte by byte.
func TestSmallestFramesAreAsDocumented(t *testing.T) {
	var b Builder
	put := compactRequests["write"]
	assert.Equal(t, "\x15\x00\x00\x00"+"\x02\x00"+"\x01\x00"+"\x01\x00\x00\x00"+"\x00\x00\x00\x00"+"\x00\x00\x00\x00"+
		"\x01"+"\x01k"+"\x01v", string(put.build(&b)))
	read := compactResponses["read"]
	assert.Equal(t, "\x15\x00\x00\x00"+"\x81\x00"+"\x01\x00"+"\x01\x00\x00\x00"+"\x00\x00\x00\x00"+"\x00\x00\x00\x00"+
		"\x01"+"\x09\x03"+"\x01v", string(read.AppendCompact(nil)))
	assert.Equal(t, "\x00kvdfrm\x01", Preamble)
}

// No proper prefix of a frame is a frame, nor is a frame with trailing bytes.
func TestTruncatedFramesAreErrors(t *testing.T) {
	for name, data := range compactFrames() {
		for n := range data {
			short := slices.Clone(data[:n])
			requireMalformed(t, short, "%s, %d bytes", name, n)
			if n >= headerBytes {
				// With a length that fits, the parts themselves end too early.
				short[0], short[1], short[2], short[3] = byte(n-4), byte((n-4)>>8), 0, 0
				requireMalformed(t, short, "%s, %d bytes with their length", name, n)
			}
		}
		long := append(slices.Clone(data), 0)
		requireMalformed(t, long, "%s with a byte appended", name)
		long[0]++
		requireMalformed(t, long, "%s with a byte more", name)
	}
}

func requireMalformed(t *testing.T, data []byte, format string, args ...any) {
	t.Helper()
	args = append([]any{format}, args...)
	var request Request
	require.Error(t, request.DecodeCompact(data), args...)
	require.Empty(t, request.Ops, args...)
	require.ErrorIs(t, request.DecodeCompact(data), ErrMalformed)
	var response Response
	require.Error(t, response.DecodeCompact(data), args...)
	require.Empty(t, response.Results, args...)
}

func TestMalformedFrames(t *testing.T) {
	request := func(kind, flags, count byte, body string) string {
		return string([]byte{byte(16 + len(body)), 0, 0, 0, kind, flags, count, 0}) + strings.Repeat("\x00", 12) + body
	}
	const huge = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
	for name, test := range map[string]struct{ data, want string }{
		"no length":                  {"\x10\x00\x00", "too early"},
		"shorter than a header":      {"\x0f\x00\x00\x00" + strings.Repeat("\x00", 15), "less than its header"},
		"a larger length":            {"\xff\xff\xff\xff" + strings.Repeat("\x00", 16), "too early"},
		"reserved bytes":             {request(1, 0, 1, "")[:16] + "\x01\x00\x00\x00", "reserved"},
		"kind 0":                     {request(0, 0, 1, "\x01\x01k"), "frame(0x0)"},
		"an answer to the server":    {request(0x81, 0, 1, "\x01\x01k"), "kind answers"},
		"an unknown flag":            {request(1, 0x20, 1, "\x01\x01k"), "unknown flags 0x20"},
		"reads with a name":          {request(1, flagNamed, 1, "\x01\x01k"), "unknown flags 0x1"},
		"reads with durability":      {request(1, 0x04, 1, "\x01\x01k"), "unknown flags 0x4"},
		"writes at one version":      {request(2, flagOneVersion, 1, "\x02\x01k"), "unknown flags 0x10"},
		"no operation":               {request(1, 0, 0, ""), "empty"},
		"too many operations":        {request(1, 0, 1, "\x01\x01k")[:6] + "\x01\x04" + strings.Repeat("\x00", 12) + "\x01\x01k", "more than 1024"},
		"fewer operations":           {request(1, 0, 2, "\x01\x01k"), "too early"},
		"more operations":            {request(1, 0, 1, "\x01\x01k\x01\x01k"), "bytes after"},
		"an unknown read":            {request(1, 0, 1, "\x02\x01k"), "unknown bits"},
		"a read with a time to live": {request(1, 0, 1, "\x05\x01\x01k"), "unknown bits"},
		"two versions":               {request(1, flagOneVersion, 1, "\x41\x07\x01k"), "unknown bits"},
		"no key":                     {request(1, 0, 1, "\x01\x00\x00"), "without a key"},
		"a key too long":             {request(1, 0, 1, "\x01\x02k"), "too early"},
		"a key of 16 EiB":            {request(1, 0, 1, "\x01"+huge), "too early"},
		"a number of 11 bytes":       {request(1, 0, 1, "\x01"+huge[:9]+"\xff\x01k"), "too large"},
		"a timeout of 33 bits":       {request(1, 0, 1, "\x81\x80\x80\x80\x80\x10\x01k"), "too large"},
		"a delete with time to live": {request(2, 0, 1, "\x06\x01\x01k"), "unknown bits"},
		"a skipped delete with it":   {request(2, 0, 1, "\x04\x01\x01k"), "unknown bits"},
		"an unknown condition":       {request(2, 0, 1, "\x0a\x05\x01k"), "unknown condition 5"},
		"no condition":               {request(2, 0, 1, "\x0a\x00\x01k"), "unknown condition 0"},
		"a name without a client":    {request(2, 0, 1, "\x22\x01\x01k"), "without a client"},
		"calls with flags":           {request(4, flagTimed, 1, "\x01\x00"), "unknown flags 0x2"},
		"a call of no method":        {request(4, 0, 1, "\x00\x00"), "unknown bits"},
		"a call of another method":   {request(4, 0, 1, "\x07\x00"), "unknown bits"},
		"a call with reserved bits":  {request(4, 0, 1, "\x21\x00"), "unknown bits"},
		"a call that is too short":   {request(4, 0, 1, "\x01\x01"), "too early"},
		"half a client":              {request(2, flagNamed, 1, "\x01\x00\x00\x00\x00\x00\x00\x00"), "too early"},
	} {
		var r Request
		require.ErrorContains(t, r.DecodeCompact([]byte(test.data)), test.want, name)
	}
	for name, test := range map[string]struct{ data, want string }{
		"a request to the client":    {request(1, 0, 1, "\x01\x01k"), "kind reads"},
		"an unknown flag":            {request(0x81, 4, 1, "\x10"), "unknown flags 0x4"},
		"no result":                  {request(0x81, 0, 0, ""), "empty"},
		"an unknown head":            {request(0x81, 0, 1, "\x20\x01"), "unknown bits"},
		"skipped and done":           {request(0x81, 0, 1, "\x12\x01"), "unknown bits"},
		"absent with time to live":   {request(0x81, 0, 1, "\x06\x01"), "unknown bits"},
		"a failure without a code":   {request(0x81, 0, 1, "\x03\x00\x00\x00\x00\x00"), "without a code"},
		"a code of 32 bits":          {request(0x81, 0, 1, "\x03\x80\x80\x80\x80\x08\x00\x00\x00\x00"), "too large"},
		"a position out of range":    {request(0x81, flagSparse, 2, "\xff\x07\x10\x00\x10"), "too large"},
		"no timings":                 {request(0x81, flagTimed, 1, "\x00\x10"), "too early"},
		"fewer timings":              {request(0x81, flagTimed, 1, "\x03\x01\x10"), "too early"},
		"two refusals":               {request(0x83, 0, 2, "\x10\x10"), "several results"},
		"a refusal with timings":     {request(0x83, flagTimed, 1, "\x10"), "unknown flags"},
		"going away with a result":   {request(0x82, 0, 1, "\x10"), "with results"},
		"going away with flags":      {request(0x82, 1, 0, ""), "with results"},
		"going away with more":       {request(0x82, 0, 0, "\x00"), "bytes after"},
		"no details":                 {request(0x81, 0, 1, "\x07\x01\x00\x00\x00\x00\x00"), "with 0 details"},
		"too many details":           {request(0x81, 0, 1, "\x07\x01\x00\x00\x00\x00\x11"), "with 17 details"},
		"fewer details":              {request(0x81, 0, 1, "\x07\x01\x00\x00\x00\x00\x02\x01k\x01v"), "too early"},
		"a value longer than it is":  {request(0x81, 0, 1, "\x01\x01\x01\x02v"), "too early"},
		"a message longer than it":   {request(0x81, 0, 1, "\x03\x01\x00\x00\x00\x02v"), "too early"},
		"a value with reserved bits": {request(0x81, 0, 1, "\x41\x01\x01\x01v"), "unknown bits"},
	} {
		var r Response
		require.ErrorContains(t, r.DecodeCompact([]byte(test.data)), test.want, name)
	}
}

func TestFrameLengthIsBounded(t *testing.T) {
	_, err := frameLength([]byte("\xfd\x03\x00\x00"), 1024)
	require.ErrorContains(t, err, "1025 bytes, limit is 1024")
	n, err := frameLength([]byte("\xfc\x03\x00\x00"), 1024)
	require.NoError(t, err)
	assert.Equal(t, 1024, n)
}

func TestSkippedOperationsKeepTheirPlace(t *testing.T) {
	for kind, ops := range map[FrameKind][]Op{
		ReadFrame:  {{Kind: Get, Key: []byte("a")}, {Kind: Get, Key: []byte("b"), AtVersion: 1}, {Kind: Get, Key: []byte("c")}},
		CallFrame:  {{Kind: Call, Method: MethodWrite}, {Kind: Call, Method: MethodCommit, TimeoutMillis: 1}, {Kind: Call, Method: MethodReleaseSnapshot, Value: []byte("v")}},
		WriteFrame: {{Kind: Put, Key: []byte("a"), Value: []byte("v"), TTLMillis: 1}, {Kind: Delete, Key: []byte("b")}, {Kind: Put, Key: []byte("c")}},
	} {
		var b Builder
		b.Reset(kind)
		var offsets []int
		for i := range ops {
			offsets = append(offsets, b.Add(&ops[i]))
		}
		for i := range 2 {
			b.Skip(offsets[i])
			b.Skip(offsets[i])
			ops[i].Skipped = true
		}
		var got Request
		require.NoError(t, got.DecodeCompact(b.Finish(Header{})))
		want := compactRequest{kind: kind, ops: ops}
		request := want.want()
		requireSameRequest(t, &request, &got)
	}
}

func TestSizeBoundHoldsOfCompactFrames(t *testing.T) {
	for name, r := range compactRequests {
		for i := range r.ops {
			var b Builder
			b.Reset(r.kind)
			before := b.Len()
			b.Add(&Op{Kind: r.ops[i].Kind, Method: r.ops[i].Method, Key: []byte("k"), Options: Options{ClientID: r.ops[i].ClientID}})
			one := b.Len()
			b.Add(&r.ops[i])
			assert.LessOrEqual(t, b.Len()-one, r.ops[i].SizeBound(), "%s, operation %d", name, i)
			assert.Less(t, before, one)
		}
	}
}

// The generated code and this package decode each other's messages with compact frames.
func TestMessagesCarryCompactFrames(t *testing.T) {
	for name, r := range compactRequests {
		t.Run("request "+name, func(t *testing.T) {
			var b Builder
			data := r.build(&b)
			want := r.want()

			message, err := Codec().Marshal(b.Message(r.header))
			require.NoError(t, err)
			var generated kvdpb.PipelineRequest
			require.NoError(t, proto.Unmarshal(message.Materialize(), &generated))
			require.Equal(t, data, generated.Frame)
			require.Empty(t, generated.Ops)
			assert.Equal(t, data, r.build(&b), "the builder has new memory")

			var decoded Request
			require.NoError(t, Codec().Unmarshal(message, &decoded))
			requireSameRequest(t, &want, &decoded)
			require.Equal(t, proto.Size(&generated), decoded.Bytes())
			decoded.Release()
			requireSameRequest(t, &Request{}, &decoded)
			message.Free()
		})
	}
	for name, r := range compactResponses {
		t.Run("response "+name, func(t *testing.T) {
			r.Compact = true
			message, err := Codec().Marshal(&r)
			require.NoError(t, err)
			var generated kvdpb.PipelineResponse
			require.NoError(t, proto.Unmarshal(message.Materialize(), &generated))
			require.Empty(t, generated.Results)
			require.Equal(t, r.GoingAway, generated.GoingAway)
			var decoded Response
			require.NoError(t, Codec().Unmarshal(message, &decoded))
			if !r.GoingAway {
				require.Equal(t, r.AppendCompact(nil), generated.Frame)
				requireSameResponse(t, &r, &decoded)
			}
			require.Equal(t, r.GoingAway, decoded.GoingAway)
			message.Free()
		})
	}
}

// A malformed compact frame does not make the message malformed: the sender gets the
// reason.
func TestAMessageSaysWhyItsFrameIsMalformed(t *testing.T) {
	read := compactRequests["read"]
	var b Builder
	data := read.build(&b)
	op := &kvdpb.PipelineRequest_Op{Op: &kvdpb.PipelineRequest_Op_Get{Get: &kvdpb.GetRequest{Key: []byte("k")}}}
	var r Request
	for want, message := range map[string]*kvdpb.PipelineRequest{
		"too early":                            {Frame: data[:10]},
		"bytes after":                          {Frame: append(slices.Clone(data), 1)},
		"of operations and a compact frame":    {Frame: data, Ops: []*kvdpb.PipelineRequest_Op{op}},
		"of operations and a compact frame, 2": {Frame: data[:3], Ops: []*kvdpb.PipelineRequest_Op{op}},
	} {
		encoded, err := proto.Marshal(message)
		require.NoError(t, err)
		require.NoError(t, Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, &r))
		require.ErrorContains(t, r.Malformed, strings.TrimSuffix(want, ", 2"))
		require.Empty(t, r.Ops)
		require.True(t, r.Compact)
	}
	encoded, err := proto.Marshal(&kvdpb.PipelineRequest{Ops: []*kvdpb.PipelineRequest_Op{op}})
	require.NoError(t, err)
	require.NoError(t, Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, &r))
	require.NoError(t, r.Malformed)
	require.False(t, r.Compact)

	encoded, err = proto.Marshal(&kvdpb.PipelineResponse{
		Frame: (&Response{Results: []Result{{}}}).AppendCompact(nil), Results: []*kvdpb.PipelineResponse_Result{{}},
	})
	require.NoError(t, err)
	require.ErrorIs(t, Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(encoded)}, new(Response)), errTwoFormats)
}

// A frame has arrived once its last byte is in the buffer, and so has what cannot be a frame.
func TestArrivedNeedsAllBytesOfAFrame(t *testing.T) {
	r := Response{ID: 1, Results: []Result{{Value: []byte("v"), HasPrevious: true}}}
	data := r.AppendCompact(nil)
	for n := range len(data) + 1 {
		in := bufio.NewReader(bytes.NewReader(data[:n]))
		_, _ = in.Peek(len(data)) // fills the buffer; an error means that there is less
		require.Equal(t, n == len(data), Arrived(in, len(data)), "%d of %d bytes", n, len(data))
		if n >= lengthBytes {
			require.True(t, Arrived(in, len(data)-1), "the frame is above the limit")
		}
	}
}

func TestFramesAreReadFromAConnection(t *testing.T) {
	large := compactRequest{WriteFrame, Header{ID: 9}, []Op{{Kind: Put, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), keptBytes)}}}
	read := compactRequests["reads"]
	var b Builder
	var stream []byte
	for range 2 {
		stream = append(append(stream, read.build(&b)...), large.build(&b)...)
	}
	in := bufio.NewReaderSize(bytes.NewReader(append(stream, 9, 0, 0)), 32)
	var r Request
	for range 2 {
		require.NoError(t, r.Read(in, 1<<20))
		want := read.want()
		requireSameRequest(t, &want, &r)
		require.NoError(t, r.Read(in, 1<<20))
		want = large.want()
		requireSameRequest(t, &want, &r)
		require.Equal(t, len(large.build(&b)), r.Bytes())
	}
	require.ErrorIs(t, r.Read(in, 1<<20), io.ErrUnexpectedEOF)
	require.Zero(t, r.Bytes())
	in.Reset(bytes.NewReader(stream[:30]))
	require.ErrorIs(t, r.Read(in, 1<<20), io.ErrUnexpectedEOF)
	in.Reset(bytes.NewReader(nil))
	require.ErrorIs(t, r.Read(in, 1<<20), io.EOF)
	in.Reset(bytes.NewReader(stream))
	require.ErrorContains(t, r.Read(in, 40), "limit is 40")

	results := compactResponses["results"]
	in.Reset(bytes.NewReader(results.AppendCompact(nil)))
	var response Response
	require.NoError(t, response.Read(in, 1<<20))
	requireSameResponse(t, &results, &response)
}

func TestADiscardedFrameLeavesItsOperations(t *testing.T) {
	var b Builder
	reads, writes := compactRequests["reads"], compactRequests["names"]
	stream := slices.Concat(reads.build(&b), writes.build(&b), reads.build(&b))
	in := bufio.NewReaderSize(bytes.NewReader(stream), 32)
	var r Request
	for _, want := range []compactRequest{reads, writes} {
		require.NoError(t, r.Discard(in, 1<<20))
		require.True(t, r.Compact)
		require.Equal(t, len(want.ops), r.Discarded)
		require.Equal(t, len(want.ops), r.Count())
		require.Equal(t, want.header.ID, r.ID)
		require.Len(t, r.Ops, 1)
		require.Equal(t, Op{Kind: r.Ops[0].Kind}, r.Ops[0])
		require.Equal(t, want.kind == ReadFrame, r.Ops[0].Kind == Get)
		require.Zero(t, r.Bytes())
	}
	require.NoError(t, r.Read(in, 1<<20))
	require.Zero(t, r.Discarded)
	require.ErrorIs(t, r.Discard(in, 1<<20), io.EOF)
	for n := range len(reads.build(&b)) {
		in.Reset(bytes.NewReader(stream[:n]))
		require.Error(t, r.Discard(in, 1<<20))
	}
	in.Reset(bytes.NewReader(stream))
	require.ErrorIs(t, r.Discard(in, 40), ErrTooLarge)
	kind := slices.Clone(stream)
	kind[kindOffset], kind[countOffset], kind[countOffset+1] = 2, 0, 8
	in.Reset(bytes.NewReader(kind))
	require.ErrorIs(t, r.Discard(in, 1<<20), ErrTooLarge)
}

// A frame for whose operations there is no memory is not decoded, and the next one may be.
func TestAFrameIsDecodedOnlyIfThereIsRoom(t *testing.T) {
	var b Builder
	reads := compactRequests["reads"]
	stream := slices.Concat(reads.build(&b), reads.build(&b))
	in := bufio.NewReaderSize(bytes.NewReader(stream), 32)
	room := false
	r := Request{Room: func(ops int) bool {
		require.Equal(t, len(reads.ops), ops)
		return room
	}}
	require.NoError(t, r.Read(in, 1<<20))
	require.Equal(t, len(reads.ops), r.Discarded)
	require.Equal(t, reads.header.ID, r.ID)
	require.Equal(t, []Op{{Kind: Get}}, r.Ops)
	room = true
	require.NoError(t, r.Read(in, 1<<20))
	require.Zero(t, r.Discarded)
	require.Len(t, r.Ops, len(reads.ops))
}

func TestAbandonKeepsTheMemoryOfACompactFrame(t *testing.T) {
	var b Builder
	read := compactRequests["reads"]
	stream := append(read.build(&b), bytes.Repeat(read.build(&b), 2)...)
	in := bufio.NewReader(bytes.NewReader(stream))
	var r Request
	require.NoError(t, r.Read(in, 1<<20))
	key := r.Ops[0].Key
	r.Abandon()
	require.NoError(t, r.Read(in, 1<<20))
	again := r.Ops[0].Key
	again[0] = 'z'
	assert.Equal(t, "a", string(key))
	require.NoError(t, r.Read(in, 1<<20))
	assert.Equal(t, "a", string(again), "the memory is used again where it was not abandoned")
}

// A reused builder and reused decoders allocate nothing.
func TestCompactFramesCostNoAllocation(t *testing.T) {
	for name, want := range compactRequests {
		var b Builder
		data := want.build(&b)
		var r Request
		require.NoError(t, r.DecodeCompact(data))
		assert.Zero(t, testing.AllocsPerRun(10, func() { _ = r.DecodeCompact(data) }), name)
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			b.Reset(want.kind)
			for i := range want.ops {
				b.Add(&want.ops[i])
			}
			b.Finish(want.header)
		}), name)
		source := bytes.NewReader(data)
		in := bufio.NewReader(source)
		require.NoError(t, r.Read(in, 1<<20))
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			source.Reset(data)
			in.Reset(source)
			_ = r.Read(in, 1<<20)
		}), name)
	}
	for _, name := range []string{"read", "sparse", "timed", "large", "going away"} {
		want := compactResponses[name]
		data := want.AppendCompact(nil)
		var r Response
		require.NoError(t, r.DecodeCompact(data))
		assert.Zero(t, testing.AllocsPerRun(10, func() { _ = r.DecodeCompact(data) }), name)
		assert.Zero(t, testing.AllocsPerRun(10, func() { data = want.AppendCompact(data[:0]) }), name)
	}
}

func TestBuildersRefuseWhatIsNoFrame(t *testing.T) {
	var b Builder
	assert.Panics(t, func() { b.Reset(answerFrame) })
	assert.Panics(t, func() { b.Finish(Header{}) }, "empty")
	assert.Panics(t, func() { b.Add(&Op{Kind: Put, Key: []byte("k")}) }, "a write among reads")
	b.Reset(WriteFrame)
	assert.Panics(t, func() { b.Add(&Op{Kind: Get, Key: []byte("k")}) }, "a read among writes")
	b.Reset(WriteFrame)
	b.Add(&Op{Kind: Put, Key: []byte("k"), Options: Options{ClientID: 1}})
	assert.Panics(t, func() { b.Add(&Op{Kind: Put, Key: []byte("k"), Options: Options{ClientID: 2}}) }, "two clients")
	b.Reset(CallFrame)
	assert.Panics(t, func() { b.Add(&Op{Kind: Call}) }, "a call without a method")
	b.Reset(CallFrame)
	assert.Panics(t, func() { b.Add(&Op{Kind: Get, Key: []byte("k")}) }, "a read among calls")
	b.Reset(ReadFrame)
	for range MaxOps {
		b.Add(&Op{Kind: Get, Key: []byte("k")})
	}
	var r Request
	require.NoError(t, r.DecodeCompact(b.Finish(Header{})))
	assert.Panics(t, func() { b.Add(&Op{Kind: Get, Key: []byte("k")}) })

	for name, r := range map[string]Response{
		"without results": {},
		"descending":      {Results: []Result{{Tag: 2}, {Tag: 1}}},
		"out of range":    {Results: []Result{{Tag: MaxOps}}},
		"both":            {GoingAway: true, Results: []Result{{}}},
	} {
		assert.Panics(t, func() { r.AppendCompact(nil) }, name)
	}
}

// Decoding, encoding and decoding again gives the same request.
func FuzzCompactRequest(f *testing.F) {
	addCompactSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r, again Request
		err := r.DecodeCompact(data)

		message := kvdpb.PipelineRequest{Frame: data}
		encoded, marshalErr := proto.Marshal(&message)
		require.NoError(t, marshalErr)
		require.NoError(t, again.decode(encoded))
		require.Equal(t, err == nil || len(data) == 0, again.Malformed == nil)
		if err != nil {
			require.Empty(t, r.Ops)
			return
		}
		requireSameRequest(t, &r, &again)

		rebuilt := compactRequest{kind: ReadFrame, ops: r.Ops}
		rebuilt.header = Header{ID: r.ID, Timed: r.Timed, OneVersion: r.OneVersion}
		switch r.Ops[0].Kind {
		case Put, Delete:
			rebuilt.kind, rebuilt.header.Durability = WriteFrame, r.Ops[0].Durability
		case Call:
			rebuilt.kind = CallFrame
		}
		require.NoError(t, again.DecodeCompact(rebuilt.build(new(Builder))))
		requireSameRequest(t, &r, &again)
	})
}

func FuzzCompactResponse(f *testing.F) {
	addCompactSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r, again Response
		if r.DecodeCompact(data) != nil {
			require.Empty(t, r.Results)
			return
		}
		for i := range r.Results {
			if result := &r.Results[i]; result.Code == 5 && result.Reason == kvdpb.ReasonKeyNotFound {
				result.Message, result.RetryAfterMillis = "", 0 // not sent with KEY_NOT_FOUND
			}
		}
		require.NoError(t, again.DecodeCompact(r.AppendCompact(nil)))
		requireSameResponse(t, &r, &again)
	})
}

func addCompactSeeds(f *testing.F) {
	frames := compactFrames()
	for _, name := range slices.Sorted(maps.Keys(frames)) {
		f.Add(frames[name])
	}
}

// sixtyFour returns a frame like those of a client under load.
func sixtyFour(kind FrameKind) compactRequest {
	r := compactRequest{kind: kind, header: Header{ID: 1, TimeoutMillis: 5000}}
	for i := range 64 {
		op := Op{Kind: Get, Key: []byte("user00000000000000042")}
		if kind == WriteFrame {
			op = Op{Kind: Put, Key: op.Key, Value: make([]byte, 100), Options: Options{ClientID: 1 << 60, Sequence: uint64(1e6 + i)}}
		}
		r.ops = append(r.ops, op)
	}
	return r
}

func benchmarkRequests(b *testing.B, do func(b *testing.B, r *compactRequest)) {
	for _, kind := range []FrameKind{ReadFrame, WriteFrame} {
		r := sixtyFour(kind)
		b.Run(kind.String(), func(b *testing.B) {
			b.ReportAllocs()
			do(b, &r)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(r.ops)), "ns/operation")
		})
	}
}

func BenchmarkBuild(b *testing.B) {
	benchmarkRequests(b, func(b *testing.B, r *compactRequest) {
		var builder Builder
		for b.Loop() {
			builder.Reset(r.kind)
			for i := range r.ops {
				builder.Add(&r.ops[i])
			}
			builder.Finish(r.header)
		}
	})
}

func BenchmarkDecodeRequest(b *testing.B) {
	benchmarkRequests(b, func(b *testing.B, r *compactRequest) {
		data := r.build(new(Builder))
		var request Request
		for b.Loop() {
			if err := request.DecodeCompact(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmarkResponses(b *testing.B, do func(b *testing.B, r *Response)) {
	for name, result := range map[string]Result{
		"reads":  {HasPrevious: true, Value: make([]byte, 100), ItemVersion: 1 << 40, Version: 1 << 40},
		"writes": {Version: 1 << 40},
	} {
		var r Response
		for i := range 64 {
			result.Tag = uint64(i)
			r.Results = append(r.Results, result)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			do(b, &r)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(r.Results)), "ns/operation")
		})
	}
}

func BenchmarkAppendResponse(b *testing.B) {
	benchmarkResponses(b, func(b *testing.B, r *Response) {
		var data []byte
		for b.Loop() {
			data = r.AppendCompact(data[:0])
		}
	})
}

func BenchmarkDecodeResponse(b *testing.B) {
	benchmarkResponses(b, func(b *testing.B, r *Response) {
		data := r.AppendCompact(nil)
		var response Response
		for b.Loop() {
			if err := response.DecodeCompact(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
