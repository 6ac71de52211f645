package kvd

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// secureScheme begins an address with TLS.
const secureScheme = "kvds://"

// secure removes the scheme kvds from the endpoints of a target, and turns TLS on for it. It leaves
// endpoints that are empty to the network, which refuses them.
func (c *config) secure(target string) (string, error) {
	endpoints := strings.Split(target, ",")
	secured, plain := 0, 0
	for i, e := range endpoints {
		address, has := strings.CutPrefix(strings.TrimSpace(e), secureScheme)
		switch {
		case has:
			endpoints[i] = address
			secured++
		case address != "":
			plain++
		}
	}
	switch {
	case secured == 0:
		return target, nil
	case plain > 0:
		return "", fmt.Errorf("%w: target %q: all of its endpoints must have the scheme kvds, or none", ErrInvalid, target)
	case c.tls == nil:
		c.tls = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	return strings.Join(endpoints, ","), nil
}
