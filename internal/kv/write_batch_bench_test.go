package kv

import (
	"fmt"
	"testing"
)

// BenchmarkNormalize makes batches of 10 puts in and out of the order of their keys.
func BenchmarkNormalize(b *testing.B) {
	for _, order := range []string{"ascending", "descending"} {
		b.Run(order, func(b *testing.B) {
			keys := make([][]byte, 10)
			for i := range keys {
				n := i
				if order == "descending" {
					n = len(keys) - i
				}
				keys[i] = fmt.Appendf(nil, "key%013d", n)
			}
			var batch WriteBatch
			b.ReportAllocs()
			for b.Loop() {
				batch.Reset()
				for _, key := range keys {
					batch.Put(key, key)
				}
				batch.Normalize(DefaultLimits)
			}
		})
	}
}
