package vfs

import (
	"bytes"
	"slices"
)

// Attribute is an extended attribute of a file: a label of the security module, an access control
// list, or what users note in the user namespace.
type Attribute struct {
	Name  string // with its namespace, such as user.comment
	Value []byte
}

// aclName is the attribute that is the POSIX access control list of a file. The permissions of
// such a file for its group are the mask of the list, not what the group may do.
const aclName = "system.posix_acl_access"

// changesOf returns what makes the attributes have those of another file: the ones to set and the
// ones to remove. A new file may have got an access control list from its directory; other
// attributes that it has got stay.
func changesOf(have, want []Attribute) (set []Attribute, remove []string) {
	for _, h := range have {
		if h.Name == aclName && !slices.ContainsFunc(want, func(w Attribute) bool { return w.Name == h.Name }) {
			remove = append(remove, h.Name)
		}
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h Attribute) bool { return h.Name == w.Name && bytes.Equal(h.Value, w.Value) }) {
			set = append(set, w)
		}
	}
	return set, remove
}

// cloneAttributes copies the values too.
func cloneAttributes(attributes []Attribute) []Attribute {
	attributes = slices.Clone(attributes)
	for i := range attributes {
		attributes[i].Value = bytes.Clone(attributes[i].Value)
	}
	return attributes
}
