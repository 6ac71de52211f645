package frame

import kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"

// The fields of RequestOptions.
const (
	optionsClientID     = 1<<3 | wireFixed64
	optionsSequence     = 2<<3 | wireVarint
	optionsDurability   = 3<<3 | wireVarint
	optionsRetried      = 5<<3 | wireVarint
	optionsKnownVersion = 6<<3 | wireVarint
)

// Options are the RequestOptions of a write.
type Options struct {
	Durability kvdpb.Durability
	// ClientID and Sequence are the request id; both are 0 if there is none.
	ClientID, Sequence uint64
	// Retried: the write was sent before, with an unknown outcome. KnownVersion is the
	// newest version that the client had seen when it first sent the write.
	Retried      bool
	KnownVersion uint64
}

// named reports whether the write has a request id.
func (o *Options) named() bool { return o.ClientID|o.Sequence != 0 }

// chosen reports whether any option must be sent.
func (o *Options) chosen() bool { return o.Durability != 0 || o.extended() }

// extended reports whether any option but the durability is set.
func (o *Options) extended() bool {
	return o.ClientID|o.Sequence|o.KnownVersion != 0 || o.Retried
}

func (o *Options) size() int {
	return sizeFixed64(optionsClientID, o.ClientID) +
		sizeUint(optionsSequence, o.Sequence) +
		sizeUint(optionsDurability, uint64(o.Durability)) +
		sizeUint(optionsRetried, asUint(o.Retried)) +
		sizeUint(optionsKnownVersion, o.KnownVersion)
}

func (o *Options) append(b []byte) []byte {
	b = appendFixed64(b, optionsClientID, o.ClientID)
	b = appendUint(b, optionsSequence, o.Sequence)
	b = appendUint(b, optionsDurability, uint64(o.Durability))
	b = appendUint(b, optionsRetried, asUint(o.Retried))
	return appendUint(b, optionsKnownVersion, o.KnownVersion)
}

func (o *Options) decode(data []byte) error {
	c := cursor{rest: data}
	for c.next() {
		switch c.key {
		case optionsClientID:
			o.ClientID = c.uint
		case optionsSequence:
			o.Sequence = c.uint
		case optionsDurability:
			o.Durability = kvdpb.Durability(c.uint)
		case optionsRetried:
			o.Retried = c.uint != 0
		case optionsKnownVersion:
			o.KnownVersion = c.uint
		}
	}
	return c.err()
}
