package peers

import "errors"

// Walk takes what opened a cursor and returns the walk, which visits the cursor's entries and
// closes it, or returns err.
func Walk(c Cursor, err error) func(Visit) error {
	return func(visit Visit) error {
		if err != nil {
			return err
		}
		for c.Next() {
			if !visit(c.Entry()) {
				return c.Close()
			}
		}
		return errors.Join(c.Err(), c.Close())
	}
}
