// Package frameapi serves compact frames (see package frame): on connections of their own,
// and in the messages of another protocol's streams.
package frameapi
