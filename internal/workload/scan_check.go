package workload

import "fmt"

// scanCheck checks a scan item by item. The scan began at a record that was present. It
// must return all records from there on that were acknowledged before it, in order. It
// may also return others: insertions in progress.
type scanCheck struct {
	records  uint64 // acknowledged before the scan
	wanted   int
	seen     int
	last     position
	expected position // the next record that must follow
	more     bool     // whether there is one
}

// begin prepares for a scan of wanted items that begins at a record.
func (c *scanCheck) begin(start position, wanted int, records uint64) {
	*c = scanCheck{records: records, wanted: wanted, expected: start, more: true}
}

// visit checks the next item.
func (c *scanCheck) visit(key, value []byte) error {
	p, ok := parsePosition(key)
	if !ok {
		return fmt.Errorf("%w: a scan found key %q, which is no record's: the store must hold nothing else", ErrWrongAnswer, key)
	}
	if c.seen == c.wanted {
		return fmt.Errorf("%w: a scan of %d records goes on to key %s", ErrWrongAnswer, c.wanted, key)
	}
	if c.seen > 0 && p <= c.last {
		return fmt.Errorf("%w: a scan goes from key %s to key %s, which does not follow it", ErrWrongAnswer, c.last.key(), key)
	}
	if c.seen == 0 && p < c.expected {
		return fmt.Errorf("%w: a scan from key %s begins before it, at key %s", ErrWrongAnswer, c.expected.key(), key)
	}
	if c.more && p > c.expected {
		return fmt.Errorf("%w: a scan leaves out key %s, which was acknowledged before: it goes on at key %s", ErrWrongAnswer, c.expected.key(), key)
	}
	if _, _, err := checkRecord(value, p.id()); err != nil {
		return err
	}
	c.seen++
	c.last = p
	if c.more && p == c.expected {
		c.expected, c.more = p.successor(c.records)
	}
	return nil
}

// end checks that the scan did not end early.
func (c *scanCheck) end() error {
	if c.more && c.seen < c.wanted {
		return fmt.Errorf("%w: a scan of %d records ends after %d; key %s, which was acknowledged before, should follow",
			ErrWrongAnswer, c.wanted, c.seen, c.expected.key())
	}
	return nil
}
