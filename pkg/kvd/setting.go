package kvd

import "context"

// SetSetting changes a setting of the running server, such as log-level, and returns its value
// before and after as text. The change lasts until the server reads its configuration file
// again, or ends. It needs the rights of an administrator. It returns ErrInvalid if the setting
// does not exist, needs a restart, or cannot have that value; the error says which.
func (c *Client) SetSetting(ctx context.Context, name, value string) (before, after string, err error) {
	const call = "set setting"
	in, err := c.enter(ctx, call)
	if err != nil {
		return "", "", err
	}
	defer in.leave()
	before, after, err = c.backend.SetSetting(ctx, name, value)
	return before, after, failed(call, err)
}
