package auth

import (
	"crypto/x509"
	"errors"
	"strings"
)

// The names of certificates begin with what they are a name of.
const (
	byURI        = "uri:" // followed by the whole URI
	byDNS        = "dns:" // followed by the name, in small letters
	byCommonName = "cn:"

	oldCommonName = "CN=" // in files from before there were prefixes
)

// certificateNames returns the names of a certificate, the one that counts first at first:
// its URI, or, if it has none, its DNS name and its common name. A certificate with several
// URIs has no name, and one with several DNS names none by these.
func certificateNames(c *x509.Certificate) (names []string) {
	if len(c.URIs) == 1 {
		return []string{byURI + c.URIs[0].String()}
	}
	if len(c.URIs) > 1 {
		return nil
	}
	if len(c.DNSNames) == 1 {
		names = append(names, byDNS+strings.ToLower(c.DNSNames[0]))
	}
	if c.Subject.CommonName != "" {
		names = append(names, byCommonName+c.Subject.CommonName)
	}
	return names
}

// CertificateName returns the name of a certificate as a file has it, with its prefix. A text
// without one is CN= and a common name, or a URI: files from before there were prefixes have
// those.
func CertificateName(text string) (string, error) {
	for _, prefix := range []string{byURI, byDNS, byCommonName, oldCommonName} {
		name, ok := strings.CutPrefix(text, prefix)
		switch {
		case !ok:
			continue
		case name == "":
			return "", errors.New("the certificate has no name after " + prefix)
		case prefix == byDNS:
			name = strings.ToLower(name)
		case prefix == oldCommonName:
			prefix = byCommonName
		}
		return prefix + name, nil
	}
	return byURI + text, nil
}
