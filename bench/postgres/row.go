package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// The rows are those of the article's program. Row n, from 1 on, has
//
//	pk       lpad(n, 20, '0')
//	payload  rpad(n || ' - ', 33, '*')
const (
	keyBytes     = 20
	payloadBytes = 33
)

// maxRows keeps the number of a row and the text after it shorter than a payload.
const maxRows = 1_000_000_000_000

// putKey fills dst, which has keyBytes.
func putKey(dst []byte, row uint64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = '0' + byte(row%10)
		row /= 10
	}
}

// putPayload fills dst, which has payloadBytes.
func putPayload(dst []byte, row uint64) {
	text := append(strconv.AppendUint(dst[:0], row, 10), " - "...)
	for i := len(text); i < len(dst); i++ {
		dst[i] = '*'
	}
}

// errWrongAnswer: a store returned what no correct one could have returned.
var errWrongAnswer = errors.New("wrong answer")

// errAbsent: a store has no row of a key. All rows that are asked for exist.
var errAbsent = fmt.Errorf("%w: no row has this key", errWrongAnswer)

// checkPayload compares a payload with that of a row, for which want has room.
func checkPayload(payload []byte, row uint64, want []byte) error {
	putPayload(want, row)
	if !bytes.Equal(payload, want) {
		return fmt.Errorf("%w: row %d has the payload %.40q, want %q", errWrongAnswer, row, payload, want)
	}
	return nil
}

// sequence chooses the rows that are read. All readers draw from the same sequence, so
// that equal rows in a row are read by several readers at about the same time, as in
// the article's program. Safe for concurrent use.
type sequence struct {
	rows  uint64 // number of rows
	inRow uint64 // how often each row is drawn, one time after the other
	seed  uint64
	drawn atomic.Uint64
}

// draw returns the number of a row.
func (s *sequence) draw() uint64 {
	n := (s.drawn.Add(1) - 1) / s.inRow
	row, _ := bits.Mul64(rand.NewPCG(s.seed, n).Uint64(), s.rows)
	return row + 1
}
