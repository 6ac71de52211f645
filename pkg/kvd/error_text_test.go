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
