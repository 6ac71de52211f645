package kvd

import "github.com/kvd-db/kvd/bench/peers"

// Inside returns the internal figures of the engine.
func (s *store) Inside() peers.Inside {
	stats := s.engine.Stats()
	inside := peers.Inside{CacheBytes: stats.Cache.Bytes, BlocksRead: stats.Cache.Misses}
	for i := range stats.Partitions {
		p := &stats.Partitions[i]
		inside.TableBytes += int64(p.DeltaBytes + p.BaseBytes + p.ValueBytes)
	}
	return inside
}
