package commit

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
)

// While the log has no room, groups wait for it outside of the log: one whose caller gives
// up has not happened, and the others are laid out anew, with the same answers as ever.
func TestGroupsWaitForRoomInTheLog(t *testing.T) {
	for _, enter := range []string{"Submit", "enqueue"} {
		t.Run(enter, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFixture(t)
				hand := func(g *WriteGroup) {
					if enter == "enqueue" {
						s.c.enqueue(t.Context(), testwait.Deadline(), g)
					} else {
						Submit(t.Context(), []*WriteGroup{g})
					}
					synctest.Wait()
				}
				s.world.MakeRoom(false)
				late, lateGroup := s.putGroup("late", kv.DurabilitySync)
				hand(lateGroup)
				var named []*kv.Write
				for range 2 { // the same write, sent twice
					named = append(named, &kv.Write{
						Op: kv.Op{Kind: kv.KindPut, Key: []byte("named")}, Hash: keyhash.Sum([]byte("named")),
						Durability: kv.DurabilityBuffered, RequestID: kv.RequestID{ClientID: 7, Sequence: 1},
					})
				}
				namedGroup := s.c.NewWriteGroup(NewCall(1), named)
				hand(namedGroup)
				for range 3 { // tries that find none
					s.world.MakeRoom(false)
					synctest.Wait()
				}
				require.Empty(t, namedGroup.call.Done())
				require.Nil(t, lateGroup.Abandon(context.DeadlineExceeded))
				require.ErrorIs(t, late.Err, context.DeadlineExceeded)
				require.NotErrorIs(t, late.Err, kv.ErrUncertain)

				s.world.MakeRoom(true)
				requireDecided(t, namedGroup)
				require.NoError(t, named[0].Err)
				require.NoError(t, named[1].Err)
				require.False(t, named[0].Deduplicated)
				require.True(t, named[1].Deduplicated)
				require.EqualValues(t, 1, named[0].Version)
				require.EqualValues(t, 1, named[1].Version)
				require.EqualValues(t, 1, s.p.Published(), "the write that was given up did not happen")
				require.EqualValues(t, 1, s.c.Stats().Duplicates)

				w, g := s.putGroup("next", kv.DurabilitySync)
				hand(g)
				requireDecided(t, g)
				require.EqualValues(t, 2, w.Version)
			})
		})
	}
}
