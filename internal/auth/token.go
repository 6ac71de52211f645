package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const (
	tokenVersion = "kvd1"
	idBytes      = 8
	secretBytes  = 32
	// MaxTokenBytes bounds what is taken for a token.
	MaxTokenBytes = 256
)

// NewToken returns a new token and what the file has of it.
func NewToken() (token string, id string, hash [sha256.Size]byte) {
	var random [idBytes + secretBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	id = hex.EncodeToString(random[:idBytes])
	token = tokenVersion + "." + id + "." + base64.RawURLEncoding.EncodeToString(random[idBytes:])
	return token, id, sha256.Sum256([]byte(token))
}

// tokenID returns the id in a token, or "" if it is none.
func tokenID(token string) string {
	version, rest, _ := strings.Cut(token, ".")
	id, secret, _ := strings.Cut(rest, ".")
	if version != tokenVersion || len(id) != 2*idBytes || secret == "" || len(token) > MaxTokenBytes {
		return ""
	}
	return id
}

func sameHash(a, b [sha256.Size]byte) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }
