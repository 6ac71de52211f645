package kvd

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestErrorsSayThingsOnce(t *testing.T) {
	deadline := fmt.Errorf("%w: context deadline exceeded", ErrUncertain)
	for want, e := range map[string]Error{
		"kvd put: too large":                                                {Err: ErrTooLarge},
		"kvd put: too large: key has 5000 bytes":                            {Err: ErrTooLarge, Message: "too large: key has 5000 bytes"},
		"kvd put: too large: too many keys":                                 {Err: ErrTooLarge, Message: "too many keys"},
		"kvd put: key not found":                                            {Err: ErrNotFound, Message: "key not found"},
		"kvd put: outcome unknown: context deadline exceeded":               {Err: deadline, Message: "context deadline exceeded"},
		"kvd put: outcome unknown: context deadline exceeded while waiting": {Err: deadline, Message: "context deadline exceeded while waiting"},
		"kvd put: outcome unknown: context deadline exceeded while resting": {Err: deadline, Message: "context canceled while resting"},
	} {
		e.Op = "put"
		assert.Equal(t, want, e.Error())
	}
}

// A host without a port means the port of kvd, and not that of HTTPS, which gRPC takes.
func TestAHostAloneHasThePortOfKvd(t *testing.T) {
	for target, want := range map[string]string{
		"localhost": "localhost:7070", "db.example.com": "db.example.com:7070", "127.0.0.1": "127.0.0.1:7070",
		"::1": "[::1]:7070", "[::1]": "[::1]:7070", "fe80::1%eth0": "fe80::1%eth0",
		"localhost:1": "localhost:1", "[::1]:1": "[::1]:1", ":7070": ":7070", "": "", "localhost:": "localhost:",
		"unix:socket": "unix:socket", "unix:///run/kvd": "unix:///run/kvd", "dns:///host": "dns:///host", "passthrough:host": "passthrough:host",
	} {
		assert.Equal(t, want, withPort(target), target)
	}
}
