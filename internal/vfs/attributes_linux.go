package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxAttributes bounds the names of the attributes of a file together, and each value. Derived: the
// kernel returns no more.
const maxAttributes = 64 << 10

// isKept reports whether an attribute says something of a file that stays true of another file in its
// place. Those of IMA and EVM are hashes and signatures of contents and inode, and the trusted
// namespace is for what lies beneath the file system.
func isKept(name string) bool {
	switch name {
	case "security.ima", "security.evm":
		return false
	}
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.") || strings.HasPrefix(name, "security.")
}

// attributesOf returns the extended attributes of a file that are kept; none if the file system
// has no such attributes.
func attributesOf(f *os.File) (all []Attribute, err error) {
	closed := control(f, func(fd int) {
		if all, err = readAttributes(fd); err != nil {
			err = &os.PathError{Op: "getxattr", Path: f.Name(), Err: err}
		}
	})
	return all, errors.Join(closed, err)
}

func readAttributes(fd int) (all []Attribute, err error) {
	buf := make([]byte, maxAttributes)
	n, err := unix.Flistxattr(fd, buf)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := strings.Split(string(buf[:n]), "\x00") // each ends with a zero
	for _, name := range names {
		if !isKept(name) {
			continue
		}
		n, err := unix.Fgetxattr(fd, name, buf)
		if errors.Is(err, unix.ENODATA) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, Attribute{name, bytes.Clone(buf[:n])})
	}
	return all, nil
}

// setAttributes makes the kept attributes of a file those of another one.
func setAttributes(f *os.File, want []Attribute) (err error) {
	closed := control(f, func(fd int) {
		if err = writeAttributes(fd, want); err != nil {
			err = &os.PathError{Op: "setxattr", Path: f.Name(), Err: err}
		}
	})
	return errors.Join(closed, err)
}

func writeAttributes(fd int, want []Attribute) error {
	have, err := readAttributes(fd)
	if err != nil {
		return err
	}
	set, remove := changesOf(have, want)
	for _, name := range remove {
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, a := range set {
		if err := unix.Fsetxattr(fd, a.Name, a.Value, 0); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}
