package daemon

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/kv"
)

type stringValue struct{ p *string }

func (v stringValue) Set(text string) error { *v.p = text; return nil }
func (v stringValue) String() string        { return *v.p }
func (v stringValue) Type() string          { return "string" }

type intValue struct{ p *int }

func (v intValue) String() string { return strconv.Itoa(*v.p) }
func (v intValue) Type() string   { return "int" }
func (v intValue) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a whole number, 0 or more", text)
	}
	*v.p = n
	return nil
}

type boolValue struct{ p *bool }

func (v boolValue) String() string { return strconv.FormatBool(*v.p) }
func (v boolValue) Type() string   { return "bool" }
func (v boolValue) Set(text string) error {
	b, err := strconv.ParseBool(text)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", text)
	}
	*v.p = b
	return nil
}

type durationValue struct{ p *time.Duration }

func (v durationValue) String() string { return v.p.String() }
func (v durationValue) Type() string   { return "duration" }
func (v durationValue) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration, such as 500us, 20s or 1m", text)
	}
	*v.p = d
	return nil
}

type durabilityValue struct{ p *kv.Durability }

func (v durabilityValue) Type() string { return "level" }
func (v durabilityValue) String() string {
	if *v.p == kv.DurabilityDefault {
		return kv.DurabilitySync.String() // see Config.Durability
	}
	return v.p.String()
}
func (v durabilityValue) Set(text string) error {
	d, err := kv.ParseDurability(text)
	if err != nil || d == kv.DurabilityDefault {
		return fmt.Errorf("invalid durability %q; want memory, buffered or sync", text)
	}
	*v.p = d
	return nil
}

// choiceValue is one of a few words.
type choiceValue struct {
	p       *string
	choices []string
}

func (v choiceValue) String() string { return *v.p }
func (v choiceValue) Type() string   { return strings.Join(v.choices, "|") }
func (v choiceValue) Set(text string) error {
	for _, c := range v.choices {
		if text == c {
			*v.p = text
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(v.choices, ", "))
}

// bytesValue is a number of bytes with a unit; zero is spelled auto.
type bytesValue struct{ p *int64 }

func (v bytesValue) Type() string { return "size" }
func (v bytesValue) String() string {
	if *v.p == 0 {
		return "auto"
	}
	return bytesize.Format(*v.p)
}

func (v bytesValue) Set(text string) error {
	if text == "auto" {
		*v.p = 0
		return nil
	}
	n, err := bytesize.Parse(text)
	if err != nil {
		return err
	}
	*v.p = n
	return nil
}

// ErrUsage: the arguments or settings are invalid; nothing was started.
var ErrUsage = errors.New("wrong usage")
