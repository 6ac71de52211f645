package frame

import "io"

// MaxSignInBytes bounds a sign-in frame.
const MaxSignInBytes = 1 << 10

// AppendSignIn appends the frame by which a client signs in.
func AppendSignIn(b []byte, token string) []byte {
	start := len(b)
	b = append(b, make([]byte, headerBytes)...)
	b = appendCompactBytes(b, token)
	h := header{kind: signInFrame}
	h.put(b[start:], len(b)-start)
	return b
}

// ReadSignIn reads the frame by which a client signs in in VersionSignIn, and no further. It
// returns the token.
func ReadSignIn(from io.Reader) (token string, err error) {
	if token, err = ReadAnySignIn(from); err == nil && token == "" {
		err = malformed("a sign-in without a token")
	}
	return token, err
}

// ReadAnySignIn is ReadSignIn in VersionCalls: the token is empty if the client has none.
func ReadAnySignIn(from io.Reader) (token string, err error) {
	var head [headerBytes]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return "", err
	}
	n, err := frameLength(head[:], MaxSignInBytes)
	if err != nil {
		return "", err
	}
	frame := make([]byte, n)
	copy(frame, head[:])
	if _, err := io.ReadFull(from, frame[headerBytes:]); err != nil {
		return "", err
	}
	h, body, err := decodeHeader(frame)
	switch {
	case err != nil:
		return "", err
	case h.kind != signInFrame:
		return "", malformed("%v before the client has signed in", h.kind)
	case h.flags != 0 || h.count != 0 || h.id != 0 || h.extra != 0:
		return "", malformed("a sign-in with parts that this version does not know")
	}
	token = string(body.bytes())
	if err := body.end(); err != nil {
		return "", err
	}
	return token, nil
}

// Version returns the version of the format in a preamble, or 0 if it is none.
func Version(preamble [PreambleBytes]byte) byte {
	const version = PreambleBytes - 1
	if string(preamble[:version]) != Preamble[:version] {
		return 0
	}
	return preamble[version]
}

// PreambleOf returns the preamble of a version.
func PreambleOf(version byte) string {
	return Preamble[:PreambleBytes-1] + string([]byte{version})
}

// Versions of the format.
const (
	// VersionPlain has no sign-in.
	VersionPlain = 1
	// VersionSignIn has a sign-in frame as the first one of the client.
	VersionSignIn = 2
	// VersionCalls has a sign-in, whose token may be empty, and CallFrame.
	VersionCalls = 3
	// VersionIncarnation is VersionCalls, and the server tells the incarnation of its cluster.
	VersionIncarnation = 4

	PreambleBytes = len(Preamble)
)
