package frame

import (
	"fmt"
	"reflect"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// compareRequest says where a decoded frame differs from what the generated code
// decoded; it is empty if they agree.
func compareRequest(r *Request, want *kvdpb.PipelineRequest) string {
	if len(r.Ops) != len(want.Ops) {
		return fmt.Sprintf("%d operations, want %d", len(r.Ops), len(want.Ops))
	}
	for i, op := range want.Ops {
		w := Op{Tag: op.Tag, TimeoutMillis: op.TimeoutMs}
		switch body := op.Op.(type) {
		case *kvdpb.PipelineRequest_Op_Get:
			w.Kind, w.Key, w.AtVersion, w.Epoch = Get, body.Get.GetKey(), body.Get.GetAtVersion(), body.Get.GetEpoch()
		case *kvdpb.PipelineRequest_Op_Put:
			item := body.Put.GetItem()
			w.Kind, w.Key, w.Value, w.TTLMillis = Put, item.GetKey(), item.GetValue(), item.GetTtlMs()
			w.Condition, w.ReturnPrevious = conditionOf(body.Put.GetPrecondition()), body.Put.GetReturnPrevious()
			w.Options = optionsOf(body.Put.GetOptions())
		case *kvdpb.PipelineRequest_Op_Delete:
			w.Kind, w.Key = Delete, body.Delete.GetKey()
			w.Condition, w.ReturnPrevious = conditionOf(body.Delete.GetPrecondition()), body.Delete.GetReturnPrevious()
			w.Options = optionsOf(body.Delete.GetOptions())
		}
		got := r.Ops[i]
		for _, b := range []*[]byte{&got.Key, &got.Value, &got.Condition.Value, &w.Key, &w.Value, &w.Condition.Value} {
			nilIfEmpty(b)
		}
		if !reflect.DeepEqual(got, w) {
			return fmt.Sprintf("operation %d is %v, want %v", i, got, w)
		}
	}
	return ""
}

// nilIfEmpty turns empty bytes into nil.
func nilIfEmpty(b *[]byte) {
	if len(*b) == 0 {
		*b = nil
	}
}

func conditionOf(p *kvdpb.Precondition) (c Condition) {
	if p != nil && len(p.ProtoReflect().GetUnknown()) > 0 {
		return Condition{Kind: UnknownCondition}
	}
	switch kind := p.GetKind().(type) {
	case *kvdpb.Precondition_MustExist:
		if kind.MustExist {
			c.Kind = MustExist
		}
	case *kvdpb.Precondition_MustNotExist:
		if kind.MustNotExist {
			c.Kind = MustNotExist
		}
	case *kvdpb.Precondition_VersionEquals:
		c.Kind, c.Version = VersionEquals, kind.VersionEquals
	case *kvdpb.Precondition_ValueEquals:
		c.Kind, c.Value = ValueEquals, kind.ValueEquals
	}
	return c
}

func optionsOf(o *kvdpb.RequestOptions) Options {
	return Options{
		Durability: o.GetDurability(), ClientID: o.GetClientId(), Sequence: o.GetSequence(),
		Retried: o.GetRetried(), KnownVersion: o.GetKnownVersion(),
	}
}

// compareResponse does the same for a response. A malformed result can be both a
// failure and a success; its version is then that of either.
func compareResponse(r *Response, want *kvdpb.PipelineResponse) string {
	if len(r.Results) != len(want.Results) || r.GoingAway != want.GoingAway {
		return fmt.Sprintf("%d results, going away %t; want %d, %t", len(r.Results), r.GoingAway, len(want.Results), want.GoingAway)
	}
	for i, result := range want.Results {
		s := result.GetStatus()
		w := Result{
			Tag: result.Tag, Code: s.GetCode(), Reason: s.GetReason(), Message: s.GetMessage(),
			RetryAfterMillis: s.GetRetryAfterMs(), Version: s.GetVersion(),
		}
		var meta *kvdpb.ResponseMeta
		var item *kvdpb.Item
		switch body := result.Result.(type) {
		case *kvdpb.PipelineResponse_Result_Get:
			w.Kind, meta, item = Get, body.Get.GetMeta(), body.Get.GetItem()
		case *kvdpb.PipelineResponse_Result_Put:
			w.Kind, meta, item = Put, body.Put.GetMeta(), body.Put.GetPrevious()
			w.HasPrevious = item != nil
		case *kvdpb.PipelineResponse_Result_Delete:
			w.Kind, meta, item = Delete, body.Delete.GetMeta(), body.Delete.GetPrevious()
			w.HasPrevious = item != nil
		}
		w.Value, w.ItemVersion, w.TTLMillis = item.GetValue(), item.GetVersion(), item.GetTtlMs()
		w.Deduplicated = meta.GetDeduplicated()
		got := r.Results[i]
		if meta != nil {
			w.Version = meta.GetVersion()
		}
		if meta != nil && s != nil || s == nil && w.Kind != 0 && meta == nil {
			got.Version, w.Version = 0, 0
		}
		nilIfEmpty(&got.Value)
		nilIfEmpty(&w.Value)
		if !reflect.DeepEqual(got, w) {
			return fmt.Sprintf("result %d is %v, want %v", i, got, w)
		}
	}
	return ""
}
