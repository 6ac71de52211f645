package auth

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/bytesize"
)

// Quota bounds what all clients of one name use together. A zero field is no bound.
type Quota struct {
	Requests    Rate          // operations: each of a batch, a transaction or a frame counts, and each page of a scan
	Bytes       Rate          // of requests and of answers
	Burst       time.Duration // for how long what the rates allow is saved up; 0: DefaultBurst
	Snapshots   int           // open at a time
	Connections int           // open at a time
}

const (
	// DefaultBurst is how long what a rate allows is saved up, unless the quota says so.
	DefaultBurst = time.Second
	// maxBurst and maxCount keep the arithmetic of buckets far from overflow.
	maxBurst = 24 * time.Hour
	maxCount = 1 << 40
)

// Rate is so many of something in a time: a second, a minute or an hour.
type Rate struct {
	Count int64 // 0: no bound
	Per   time.Duration
}

var rateUnits = []struct {
	name string
	per  time.Duration
}{{"/s", time.Second}, {"/m", time.Minute}, {"/h", time.Hour}}

func parseRate(text string, number func(string) (int64, error)) (r Rate, ok bool) {
	for _, u := range rateUnits {
		digits, found := strings.CutSuffix(text, u.name)
		if !found {
			continue
		}
		n, err := number(digits)
		return Rate{n, u.per}, err == nil && n > 0 && n <= maxCount
	}
	return r, false
}

// ParseRate parses a rate of operations, such as 1000/s, 60/m or 10/h.
func ParseRate(text string) (Rate, error) {
	r, ok := parseRate(text, func(digits string) (int64, error) { return strconv.ParseInt(digits, 10, 64) })
	if !ok {
		return Rate{}, fmt.Errorf("%q is no rate, such as 1000/s, 60/m or 10/h", text)
	}
	return r, nil
}

// ParseByteRate parses a rate of bytes, such as 10MiB/s.
func ParseByteRate(text string) (Rate, error) {
	r, ok := parseRate(text, bytesize.Parse)
	if !ok {
		return Rate{}, fmt.Errorf("%q is no rate of bytes, such as 10MiB/s or 1GiB/h", text)
	}
	return r, nil
}

func (r Rate) unit() string {
	for _, u := range rateUnits {
		if u.per == r.Per {
			return u.name
		}
	}
	return "/" + r.Per.String()
}

// String is the inverse of ParseRate; "" for no bound.
func (r Rate) String() string {
	if r.Count == 0 {
		return ""
	}
	return strconv.FormatInt(r.Count, 10) + r.unit()
}

// ByteString is the inverse of ParseByteRate; "" for no bound.
func (r Rate) ByteString() string {
	if r.Count == 0 {
		return ""
	}
	return bytesize.Format(r.Count) + r.unit()
}

// String has the bounds in words; "none" if there are none.
func (q Quota) String() string {
	var all []string
	for r := range resources {
		if limit := q.limit(r); limit != "" {
			all = append(all, limit)
		}
	}
	if q.Burst != 0 {
		all = append(all, "burst "+q.Burst.String())
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// Check returns an error if the quota cannot be kept.
func (q Quota) Check() error {
	switch {
	case q.Snapshots < 0 || q.Connections < 0:
		return errors.New("snapshots and connections: want 1 or more, or 0 for no bound")
	case q.Burst < 0 || q.Burst > maxBurst:
		return fmt.Errorf("burst %v: want a time up to %v, or 0 for %v", q.Burst, maxBurst, DefaultBurst)
	case q.Burst != 0 && q.Requests.Count == 0 && q.Bytes.Count == 0:
		return errors.New("a burst needs a rate of requests or of bytes")
	}
	return nil
}

// Resource is what a quota bounds.
type Resource int

// The resources of a quota.
const (
	Requests Resource = iota
	Bytes
	Snapshots
	Connections
	resources
)

var resourceNames = [resources]string{"requests", "bytes", "snapshots", "connections"}

func (r Resource) String() string { return resourceNames[r] }

// limit returns the bound of a resource in words; "" if there is none.
func (q Quota) limit(r Resource) string {
	switch {
	case r == Requests && q.Requests.Count > 0:
		return "requests " + q.Requests.String()
	case r == Bytes && q.Bytes.Count > 0:
		return "bytes " + q.Bytes.ByteString()
	case r == Snapshots && q.Snapshots > 0:
		return "snapshots " + strconv.Itoa(q.Snapshots)
	case r == Connections && q.Connections > 0:
		return "connections " + strconv.Itoa(q.Connections)
	}
	return ""
}

type quotaJSON struct {
	Requests    string `json:"max_requests,omitempty"`
	Bytes       string `json:"max_bytes,omitempty"`
	Burst       string `json:"burst,omitempty"`
	Snapshots   int    `json:"max_snapshots,omitempty"`
	Connections int    `json:"max_connections,omitempty"`
}

func (q Quota) toJSON() *quotaJSON {
	if q == (Quota{}) {
		return nil
	}
	j := &quotaJSON{Requests: q.Requests.String(), Bytes: q.Bytes.ByteString(), Snapshots: q.Snapshots, Connections: q.Connections}
	if q.Burst != 0 {
		j.Burst = q.Burst.String()
	}
	return j
}

func (j *quotaJSON) quota() (q Quota, err error) {
	if j == nil {
		return q, nil
	}
	q.Snapshots, q.Connections = j.Snapshots, j.Connections
	if j.Requests != "" {
		if q.Requests, err = ParseRate(j.Requests); err != nil {
			return q, fmt.Errorf("max_requests: %w", err)
		}
	}
	if j.Bytes != "" {
		if q.Bytes, err = ParseByteRate(j.Bytes); err != nil {
			return q, fmt.Errorf("max_bytes: %w", err)
		}
	}
	if j.Burst != "" {
		if q.Burst, err = time.ParseDuration(j.Burst); err != nil {
			return q, fmt.Errorf("burst %q is no duration, such as 500ms or 10s", j.Burst)
		}
	}
	return q, q.Check()
}
