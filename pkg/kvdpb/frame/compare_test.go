package frame

import (
	"fmt"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// compareRequest says where a decoded frame differs from what the generated code
// read; it is empty if nowhere.
func compareRequest(r *Request, want *kvdpb.PipelineRequest) string {
	if len(r.Ops) != len(want.Ops) {
		return fmt.Sprintf("%d operations, want %d", len(r.Ops), len(want.Ops))
	}
	for i, op := range want.Ops {
		w := Op{Tag: op.Tag, TimeoutMillis: op.TimeoutMs}
		switch body := op.Op.(type) {
		case *kvdpb.PipelineRequest_Op_Get:
			w.Kind, w.Key = Get, body.Get.GetKey()
		case *kvdpb.PipelineRequest_Op_Put:
			w.Kind, w.Key, w.Value = Put, body.Put.GetItem().GetKey(), body.Put.GetItem().GetValue()
			w.Durability = body.Put.GetOptions().GetDurability()
		case *kvdpb.PipelineRequest_Op_Delete:
			w.Kind, w.Key = Delete, body.Delete.GetKey()
			w.Durability = body.Delete.GetOptions().GetDurability()
		}
		if got := r.Ops[i]; fmt.Sprintf("%x", got) != fmt.Sprintf("%x", w) {
			return fmt.Sprintf("operation %d is %x, want %x", i, got, w)
		}
	}
	return ""
}

// compareResponse does so for a response. A result may by its bytes be both a
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
		switch body := result.Result.(type) {
		case *kvdpb.PipelineResponse_Result_Get:
			w.Kind, meta = Get, body.Get.GetMeta()
			w.Value, w.ItemVersion = body.Get.GetItem().GetValue(), body.Get.GetItem().GetVersion()
		case *kvdpb.PipelineResponse_Result_Put:
			w.Kind, meta = Put, body.Put.GetMeta()
		case *kvdpb.PipelineResponse_Result_Delete:
			w.Kind, meta = Delete, body.Delete.GetMeta()
		}
		got := r.Results[i]
		if meta != nil {
			w.Version = meta.GetVersion()
		}
		if meta != nil && s != nil || s == nil && w.Kind != 0 && meta == nil {
			got.Version, w.Version = 0, 0
		}
		if fmt.Sprintf("%x", got) != fmt.Sprintf("%x", w) {
			return fmt.Sprintf("result %d is %x, want %x", i, got, w)
		}
	}
	return ""
}
