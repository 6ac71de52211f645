package messages

import (
	"strconv"

	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// keyMetadata is the longest key, in quotes, that an error names. Details travel
// in a trailer, and a client whose bound of headers they exceed, 8 KiB being a
// common one, gets no reason at all.
const keyMetadata = 1 << 10

// MetadataOf returns the figures of an error as its ErrorInfo has them.
func MetadataOf(e *service.Error) map[string]string {
	var all map[string]string
	set := func(name, value string) {
		if all == nil {
			all = make(map[string]string, 2)
		}
		all[name] = value
	}
	if e.Cause != "" {
		set(kvdpb.MetadataCause, e.Cause)
	}
	if e.RequestID != "" {
		set(kvdpb.MetadataRequestID, e.RequestID)
	}
	if e.Size > 0 {
		set(kvdpb.MetadataSize, strconv.FormatInt(e.Size, 10))
		set(kvdpb.MetadataLimit, strconv.FormatInt(e.Limit, 10))
	}
	if e.Version != 0 || e.Reason == reason.ConditionFailed {
		set(kvdpb.MetadataVersion, strconv.FormatUint(uint64(e.Version), 10))
	}
	if quoted := strconv.Quote(string(e.Key)); e.Key != nil && len(quoted) <= keyMetadata {
		set(kvdpb.MetadataKey, quoted)
	}
	return all
}
