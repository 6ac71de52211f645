package peers

import "errors"

// Walk visits the entries of a cursor, unless err says that there is none, and closes it.
func Walk(c Cursor, err error, visit Visit) error {
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
