package messages_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// list is a list in a request, of elements that are small beside what they are decoded to.
type list struct {
	name    string
	request func() proto.Message
	field   int
	tiny    string // an element
	refused string // what the error of too many says
}

var lists = []list{
	{"Write", func() proto.Message { return new(kvdpb.WriteRequest) }, 1, "", "batch has 4097 operations"},
	{"Write, puts", func() proto.Message { return new(kvdpb.WriteRequest) }, 1, "\x0a\x00", "batch has 4097 operations"},
	{"Write, conditions", func() proto.Message { return new(kvdpb.WriteRequest) }, 1, "\x12\x01k\x22\x03\x22\x01v", "batch has 4097 operations"},
	{"BatchGet", func() proto.Message { return new(kvdpb.BatchGetRequest) }, 1, "", "4097 keys"},
	{"BatchGet, keys", func() proto.Message { return new(kvdpb.BatchGetRequest) }, 1, "k", "4097 keys"},
	{"Commit, keys", func() proto.Message { return new(kvdpb.CommitRequest) }, 2, "", "transaction read 4097 keys and ranges"},
	{"Commit, ranges", func() proto.Message { return new(kvdpb.CommitRequest) }, 3, "", "transaction read 4097 keys and ranges"},
	{"Commit, mutations", func() proto.Message { return new(kvdpb.CommitRequest) }, 4, "\x1a\x00", "batch has 4097 operations"},
	{"Commit, expiring keys", func() proto.Message { return new(kvdpb.CommitRequest) }, 7, "", "names 4097 keys that expire"},
	{"Execute, guards", func() proto.Message { return new(kvdpb.ExecuteRequest) }, 1, "\x12\x00", "batch has 4097 operations"},
	{"Execute, then", func() proto.Message { return new(kvdpb.ExecuteRequest) }, 2, "", "batch has 4097 operations"},
	{"Execute, else", func() proto.Message { return new(kvdpb.ExecuteRequest) }, 3, "\x0a\x00", "batch has 4097 operations"},
}

func (l *list) encoded(elements int) []byte {
	return bytes.Repeat(append([]byte{byte(l.field<<3 | 2), byte(len(l.tiny))}, l.tiny...), elements)
}

func newServer() *service.Server {
	return service.New(servicetest.New(kv.DefaultLimits), service.Options{})
}

// Before a request is decoded, as much memory is reserved as it occupies then.
func TestDecodeReservesWhatARequestOccupies(t *testing.T) {
	s := newServer()
	for _, l := range lists {
		encoded := l.encoded(kv.DefaultLimits.BatchOps)
		reserved := int64(0)
		request := l.request()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		err := messages.Decode(s, new(service.Call), encoded, request, func(bytes int64) error {
			assert.Zero(t, proto.Size(request), "%s: it is not decoded yet", l.name)
			reserved = bytes
			return nil
		})
		require.NoError(t, err, l.name)
		runtime.GC()
		runtime.ReadMemStats(&after)
		occupied := int64(after.HeapAlloc) - int64(before.HeapAlloc)
		const others = 64 << 10 // of the test
		assert.LessOrEqual(t, occupied, reserved+others, l.name)
		assert.Greater(t, occupied, 4*int64(len(encoded)/(2+len(l.tiny))), "%s: the test measures nothing", l.name)
		runtime.KeepAlive(request)
	}
}

// A request with more elements than its method takes is refused, and nothing of it is decoded.
func TestDecodeRefusesTooManyElements(t *testing.T) {
	s := newServer()
	method := s.Method("test", service.Writes, service.ByKey)
	for _, l := range lists {
		request := l.request()
		err := messages.Decode(s, new(service.Call), l.encoded(kv.DefaultLimits.BatchOps+1), request, func(int64) error {
			t.Errorf("%s: memory is reserved", l.name)
			return nil
		})
		require.ErrorIs(t, err, kv.ErrTooLarge, l.name)
		why := s.Failure(method, err)
		assert.Equal(t, service.InvalidArgument, why.Code, l.name)
		assert.Contains(t, why.Message, l.refused, l.name)
		assert.Contains(t, why.Message, "limit is 4096", l.name)
		assert.Zero(t, proto.Size(request), l.name)
	}
	err := messages.Decode(s, new(service.Call), append(lists[5].encoded(4000), lists[6].encoded(97)...), new(kvdpb.CommitRequest), nil)
	require.ErrorIs(t, err, kv.ErrTooLarge, "keys and ranges count together")
	err = messages.Decode(s, new(service.Call), append(lists[9].encoded(4000), lists[10].encoded(97)...), new(kvdpb.ExecuteRequest), nil)
	require.ErrorIs(t, err, kv.ErrTooLarge, "guards and mutations count together")
}

// Requests of four megabytes that have nothing but empty elements, which are refused.
func BenchmarkRefuseTooManyElements(b *testing.B) {
	const elements = 2 << 20
	s := newServer()
	for _, l := range lists {
		if l.tiny != "" {
			continue
		}
		b.Run(l.name, func(b *testing.B) {
			encoded := l.encoded(elements)
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				if messages.Decode(s, new(service.Call), encoded, l.request(), func(int64) error { return nil }) == nil {
					b.Fatal("it was not refused")
				}
			}
		})
	}
}

// FuzzDecode: what is no message is refused before memory is reserved, and nothing else is.
func FuzzDecode(f *testing.F) {
	for _, l := range lists {
		f.Add(l.encoded(3))
	}
	f.Add([]byte("\xc8\xc8\xc8\xc800")) // a number above all that a field may have
	s := newServer()
	f.Fuzz(func(t *testing.T, encoded []byte) {
		for _, l := range lists {
			reserved := false
			err := messages.Decode(s, new(service.Call), encoded, l.request(), func(bytes int64) error {
				reserved = true
				require.Positive(t, bytes)
				return nil
			})
			want := proto.Unmarshal(encoded, l.request())
			if want == nil && !reserved {
				require.ErrorIs(t, err, kv.ErrTooLarge)
				continue
			}
			require.Equal(t, want == nil, err == nil, "%s: %v, %v", l.name, want, err)
			require.Equal(t, want == nil, reserved, l.name)
		}
	})
}
