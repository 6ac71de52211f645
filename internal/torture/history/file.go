package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Save writes logs as JSON, one Op per line, so that what a rare run recorded can be judged
// again. It is called before Check, which modifies the Ops.
func Save(w io.Writer, logs ...*Log) error {
	to := json.NewEncoder(w)
	for _, l := range logs {
		for i := range l.ops {
			if err := to.Encode(&l.ops[i]); err != nil {
				return fmt.Errorf("save a history: %w", err)
			}
		}
	}
	return nil
}

// Load reads what Save wrote, as one Log.
func Load(r io.Reader) (*Log, error) {
	from, l := json.NewDecoder(r), new(Log)
	for {
		var o Op
		switch err := from.Decode(&o); {
		case errors.Is(err, io.EOF):
			return l, nil
		case err != nil:
			return nil, fmt.Errorf("load a history: operation %d: %w", len(l.ops)+1, err)
		}
		l.Add(o)
	}
}
