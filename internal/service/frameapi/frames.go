package frameapi

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// frames is what the pipelines of a server share. It implements service.Protocol for
// connections of raw frames.
type frames struct {
	server *service.Server

	methodPipeline, methodGet, methodPut, methodDelete *service.Method
	methodCalls                                        [frame.MethodReleaseSnapshot + 1]*service.Method

	raw         atomic.Int64 // connections
	rawAccepted atomic.Uint64
	rawFrames   atomic.Uint64
}

// New makes the protocol of raw frames.
func New(s *service.Server) service.Protocol { return newFrames(s) }

func newFrames(s *service.Server) *frames {
	fs := &frames{
		server:         s,
		methodPipeline: s.Method("Pipeline", service.Writes, service.ByKey),
		methodGet:      s.Method("Pipeline.Get", service.Reads, service.ByKey),
		methodPut:      s.Method("Pipeline.Put", service.Writes, service.ByKey),
		methodDelete:   s.Method("Pipeline.Delete", service.Writes, service.ByKey),
	}
	for m := frame.MethodWrite; m <= frame.MethodReleaseSnapshot; m++ {
		kind := service.Writes
		if m >= frame.MethodBeginSnapshot {
			kind = service.Reads
		}
		fs.methodCalls[m] = s.Method("Pipeline."+m.String(), kind, service.ByKey)
	}
	return fs
}

// ALPN implements service.Protocol.
func (fs *frames) ALPN() string { return frame.ALPN }

// Matches implements service.Protocol.
func (fs *frames) Matches(first byte) bool { return first == frame.Preamble[0] }

// AddStats implements service.StatsSource.
func (fs *frames) AddStats(s *service.Stats) {
	s.Raw, s.RawAccepted, s.RawFrames = fs.raw.Load(), fs.rawAccepted.Load(), fs.rawFrames.Load()
}

// Streams makes pipelines for another protocol that carries frames in its messages.
type Streams struct{ frames *frames }

// NewStreams returns the pipelines of a server's other protocol.
func NewStreams(s *service.Server) *Streams { return &Streams{newFrames(s)} }

// NewPipeline returns a pipeline of a stream on a connection, whose client has signed in for
// the stream. ctx ends with the stream.
func (s *Streams) NewPipeline(ctx context.Context, conn *service.Conn, session *auth.Session, t Transport) *Pipeline {
	return &Pipeline{transport: t, frames: s.frames, conn: conn, session: session, ctx: ctx, age: s.frames.server.Options().Lifetimes.StreamAge}
}

func (fs *frames) methodOf(op *frame.Op) *service.Method {
	switch op.Kind {
	case frame.Call:
		if m := fs.methodCalls[op.Method]; m != nil { // nil: of a frame that was discarded
			return m
		}
	case frame.Get:
		return fs.methodGet
	case frame.Put:
		return fs.methodPut
	case frame.Delete:
		return fs.methodDelete
	}
	return fs.methodPipeline
}

// Malformed is the end of a pipeline whose client sent what is no frame.
func Malformed(err error) *service.Error {
	e := &service.Error{Code: service.InvalidArgument, Reason: reason.InvalidRequest, Message: err.Error()}
	if errors.Is(err, frame.ErrTooLarge) {
		e.Reason = reason.TooLarge
	}
	return e
}

// resultOf returns an error as an answer in a frame.
func resultOf(e *service.Error, tag uint64) frame.Result {
	return frame.Result{
		Tag:              tag,
		Code:             int32(e.Code),
		Reason:           e.Reason,
		Message:          e.Message,
		RetryAfterMillis: e.RetryAfterMillis(),
		Version:          uint64(e.Version),
	}
}

// appendTimings appends what an answer frame says of where the time went.
func appendTimings(all []uint64, c *service.Call) []uint64 {
	total := time.Since(c.Begun)
	all = append(all, uint64(total), uint64(c.Store())) // frame.TimingServer and TimingStore
	times := c.Times(total)
	for _, d := range times[:service.StageReply] {
		all = append(all, uint64(d))
	}
	return all
}

// The stages of the store are sent in their order.
var _ = [1]struct{}{}[int(frame.TimingGate)+int(service.StageReply)-frame.TimingCount]

// writeOf translates a write of one key, except for its condition and its time to live.
// What this version does not know stays unknown, and is refused when it is checked.
func writeOf(op *frame.Op) (w kv.Write) {
	switch op.Kind {
	case frame.Put:
		w.Op = kv.Op{Kind: kv.KindPut, Key: op.Key, Value: op.Value}
	case frame.Delete:
		w.Op = kv.Op{Kind: kv.KindDelete, Key: op.Key}
	}
	o := &op.Options
	w.Durability = durabilityOf(o.Durability)
	w.RequestID = kv.RequestID{ClientID: o.ClientID, Sequence: o.Sequence, Retried: o.Retried, KnownVersion: kv.SeqNum(o.KnownVersion)}
	return w
}

func durabilityOf(d kvdpb.Durability) kv.Durability { return service.DurabilityOf(int32(d)) }

// The numbers of the levels are the same on the wire and in the store.
var (
	_ = [1]struct{}{}[kv.DurabilityMemory-kv.Durability(kvdpb.Durability_DURABILITY_MEMORY)]
	_ = [1]struct{}{}[kv.DurabilityBuffered-kv.Durability(kvdpb.Durability_DURABILITY_BUFFERED)]
	_ = [1]struct{}{}[kv.DurabilitySync-kv.Durability(kvdpb.Durability_DURABILITY_SYNC)]
)

func conditionOf(c *frame.Condition) kv.Condition {
	switch c.Kind {
	case 0:
		return kv.Condition{}
	case frame.MustExist:
		return kv.Condition{Kind: kv.IfPresent}
	case frame.MustNotExist:
		return kv.Condition{Kind: kv.IfAbsent}
	case frame.VersionEquals:
		return kv.Condition{Kind: kv.IfVersion, Version: kv.SeqNum(c.Version)}
	case frame.ValueEquals:
		return kv.Condition{Kind: kv.IfValue, Value: c.Value}
	}
	return kv.Condition{Kind: service.UnknownCondition}
}
