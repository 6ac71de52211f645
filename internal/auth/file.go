package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kvd-db/kvd/internal/escape"
)

const (
	// The newest version is written only for what the older one lacks: quotas and monitors.
	fileVersion       = 1
	fileVersionQuotas = 2
	// maxIdentities and maxPrefixes bound a file. Guessed: each operation looks at all
	// prefixes of its identity.
	maxIdentities = 10_000
	maxPrefixes   = 64
	maxNameBytes  = 200
)

// ErrUnsupportedVersion: the file is of a newer version.
var ErrUnsupportedVersion = errors.New("the file has a version that this kvd does not know; use a newer one")

// Entry is one identity of a file.
type Entry struct {
	Identity
	Hash [sha256.Size]byte // of the token
}

type fileJSON struct {
	Version    int         `json:"version"`
	Identities []entryJSON `json:"identities"`
}

type entryJSON struct {
	Name        string     `json:"name"`
	Token       *tokenJSON `json:"token,omitempty"`
	Certificate string     `json:"certificate,omitempty"`
	Created     time.Time  `json:"created,omitzero"`
	Expires     time.Time  `json:"expires,omitzero"`
	Read        []string   `json:"read,omitempty"`
	Write       []string   `json:"write,omitempty"`
	Admin       bool       `json:"admin,omitempty"`
	Monitor     bool       `json:"monitor,omitempty"` // since version 2
	Quota       *quotaJSON `json:"quota,omitempty"`   // since version 2
}

type tokenJSON struct {
	ID     string `json:"id"`
	SHA256 string `json:"sha256"`
}

// Decode returns the identities of a file.
func Decode(text []byte) ([]Entry, error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, err
	}
	if version.Version != fileVersion && version.Version != fileVersionQuotas {
		return nil, fmt.Errorf("version %d: %w", version.Version, ErrUnsupportedVersion)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var file fileJSON
	if err := decoder.Decode(&file); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("text follows its end")
	}
	if len(file.Identities) > maxIdentities {
		return nil, fmt.Errorf("%d identities; want at most %d", len(file.Identities), maxIdentities)
	}
	entries := make([]Entry, len(file.Identities))
	ids, certificates, named := map[string]bool{}, map[string]bool{}, map[string]int{}
	for i := range file.Identities {
		if one := &file.Identities[i]; file.Version < fileVersionQuotas && (one.Quota != nil || one.Monitor) {
			return nil, fmt.Errorf("identity %d: a quota or monitor needs a file of version %d", i, fileVersionQuotas)
		}
		if err := entries[i].decode(&file.Identities[i]); err != nil {
			return nil, fmt.Errorf("identity %d: %w", i, err)
		}
		e := &entries[i]
		certificate := ""
		if e.TokenID == "" {
			var err error
			if certificate, err = CertificateName(e.Certificate); err != nil {
				return nil, fmt.Errorf("identity %d: %w", i, err)
			}
		}
		if e.TokenID != "" && ids[e.TokenID] || certificate != "" && certificates[certificate] {
			return nil, fmt.Errorf("identity %d: its token or certificate is listed twice", i)
		}
		ids[e.TokenID], certificates[certificate] = true, true
		if same, found := named[e.Name]; found && entries[same].Quota != e.Quota {
			return nil, fmt.Errorf("identities %d and %d: both are called %q, with different quotas (%v; %v); one quota is for all of a name, see kvd token limit",
				same, i, e.Name, entries[same].Quota, e.Quota)
		}
		named[e.Name] = i
	}
	return entries, nil
}

func (e *Entry) decode(from *entryJSON) (err error) {
	if err := CheckName(from.Name); err != nil {
		return err
	}
	if (from.Token == nil) == (from.Certificate == "") {
		return errors.New("want either a token or a certificate")
	}
	e.Name, e.Certificate, e.Admin, e.Monitor = from.Name, from.Certificate, from.Admin, from.Monitor
	e.Created, e.Expires = from.Created, from.Expires
	if from.Token != nil {
		e.TokenID = from.Token.ID
		if id, err := hex.DecodeString(e.TokenID); err != nil || len(id) != idBytes || strings.ToLower(e.TokenID) != e.TokenID {
			return fmt.Errorf("token id: want %d hexadecimal digits", 2*idBytes)
		}
		hash, err := hex.DecodeString(from.Token.SHA256)
		if err != nil || len(hash) != sha256.Size {
			return fmt.Errorf("sha256: want %d hexadecimal digits", 2*sha256.Size)
		}
		e.Hash = [sha256.Size]byte(hash)
	}
	if e.Read, err = prefixes(from.Read); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if e.Write, err = prefixes(from.Write); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if e.Quota, err = from.Quota.quota(); err != nil {
		return fmt.Errorf("quota: %w", err)
	}
	return nil
}

// CheckName checks the name of an identity, which logs have.
func CheckName(name string) error {
	if name == "" || len(name) > maxNameBytes || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return fmt.Errorf("name %q: want 1 to %d bytes of printable characters", name, maxNameBytes)
	}
	return nil
}

func prefixes(texts []string) (all []string, err error) {
	if len(texts) > maxPrefixes {
		return nil, fmt.Errorf("%d prefixes; want at most %d", len(texts), maxPrefixes)
	}
	for _, text := range texts {
		prefix, err := escape.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("prefix %q: %w", text, err)
		}
		all = append(all, string(prefix))
	}
	return all, nil
}

// Encode is the inverse of Decode.
func Encode(entries []Entry) ([]byte, error) {
	file := fileJSON{Version: fileVersion, Identities: make([]entryJSON, 0, len(entries))}
	for i := range entries {
		e := &entries[i]
		to := entryJSON{
			Name: e.Name, Certificate: e.Certificate, Created: e.Created, Expires: e.Expires,
			Read: escape.Strings(e.Read), Write: escape.Strings(e.Write), Admin: e.Admin,
			Monitor: e.Monitor, Quota: e.Quota.toJSON(),
		}
		if to.Quota != nil || to.Monitor {
			file.Version = fileVersionQuotas
		}
		if e.TokenID != "" {
			to.Token = &tokenJSON{e.TokenID, hex.EncodeToString(e.Hash[:])}
		}
		file.Identities = append(file.Identities, to)
	}
	text, err := json.MarshalIndent(file, "", "  ")
	return append(text, '\n'), err
}
