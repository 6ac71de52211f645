package forward

import (
	"time"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/trace"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// HeadOf returns what is sent of a write before its message.
func HeadOf(w *service.ForwardedWrite) *peerpb.ForwardHead {
	return &peerpb.ForwardHead{Method: w.Method, Bytes: uint64(len(w.Message)), Client: clientOf(w.Identity), Epoch: w.Epoch}
}

// AnswerOf returns what has come of a write, of what the node that leads has sent.
func AnswerOf(outcome *peerpb.ForwardOutcome, answer []byte) *service.ForwardedAnswer {
	a := &service.ForwardedAnswer{Message: answer, Stages: stagesOf(outcome.GetStages())}
	if outcome.GetFailure() != nil {
		a.Err = errorOf(outcome.GetFailure())
	}
	return a
}

// clientOf returns an identity as it is sent; nil: there is none.
func clientOf(i *auth.Identity) *peerpb.ForwardClient {
	if i == nil {
		return nil
	}
	return &peerpb.ForwardClient{Name: i.Name, Read: bytesOf(i.Read), Write: bytesOf(i.Write)}
}

func bytesOf(prefixes []string) (all [][]byte) {
	for _, p := range prefixes {
		all = append(all, []byte(p))
	}
	return all
}

// identityOf returns the identity that a node has sent; nil: it knows none.
func identityOf(c *peerpb.ForwardClient) *auth.Identity {
	if c == nil {
		return nil
	}
	return &auth.Identity{Name: c.GetName(), Read: stringsOf(c.GetRead()), Write: stringsOf(c.GetWrite())}
}

func stringsOf(prefixes [][]byte) (all []string) {
	for _, p := range prefixes {
		all = append(all, string(p))
	}
	return all
}

// failureOf returns an error as it is sent.
func failureOf(e *service.Error) *peerpb.ForwardFailure {
	return &peerpb.ForwardFailure{
		Code: uint32(e.Code), Reason: e.Reason, Message: e.Message, Cause: e.Cause, RequestId: e.RequestID,
		RetryAfterNs: uint64(max(e.RetryAfter, 0)), Version: uint64(e.Version), Key: e.Key, Size: e.Size, Limit: e.Limit,
	}
}

// errorOf returns the error that a node has sent.
func errorOf(f *peerpb.ForwardFailure) *service.Error {
	return &service.Error{
		Code: service.Code(f.GetCode()), Reason: f.GetReason(), Message: f.GetMessage(), Cause: f.GetCause(), RequestID: f.GetRequestId(),
		RetryAfter: time.Duration(min(f.GetRetryAfterNs(), uint64(time.Hour))), Version: kv.SeqNum(f.GetVersion()), Key: f.Key,
		Size: f.GetSize(), Limit: f.GetLimit(),
	}
}

// sentStages returns where the store spent the time, as it is sent.
func sentStages(s trace.Stages) []uint64 {
	all := make([]uint64, 0, 5)
	for _, d := range []time.Duration{s.Inbox, s.Batch, s.Engine, s.LogWrite, s.Sync} {
		all = append(all, uint64(d))
	}
	return all
}

// stagesOf returns the stages that a node has sent; those that it has not are zero.
func stagesOf(sent []uint64) (s trace.Stages) {
	for i, d := range []*time.Duration{&s.Inbox, &s.Batch, &s.Engine, &s.LogWrite, &s.Sync} {
		if i < len(sent) {
			*d = time.Duration(min(sent[i], uint64(time.Hour)))
		}
	}
	return s
}
