package commit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ Tree = (*partition.Partition)(nil)

// fixture is a coordinator over a partition.
type fixture struct {
	t       *testing.T
	fs      *vfs.Mem
	world   *partitiontest.World
	p       *partition.Partition
	c       *Coordinator
	flushes flushes // world, as the log of members
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{t: t, fs: vfs.NewMem(), world: partitiontest.NewWorld()}
	s.flushes.World = s.world
	o := s.world.Options(s.fs)
	require.NoError(t, partition.Create(o))
	s.p, s.c = s.open(o)
	t.Cleanup(func() {
		s.stall(false) // a test that failed may have left the disk hanging
		require.NoError(t, s.close())
	})
	return s
}

// open opens a partition and starts a coordinator of its writes, which leads itself.
func (s *fixture) open(o partition.Options) (*partition.Partition, *Coordinator) {
	p, c := s.openLed(o, NewOrchestrator(nil, new(Company)))
	c.Start(s.world, 1, s.world.Last())
	return p, c
}

// openLed opens a partition whose coordinator is a member of an orchestrator. It is not started.
func (s *fixture) openLed(o partition.Options, by *Orchestrator) (*partition.Partition, *Coordinator) {
	p, err := partition.Open(o)
	require.NoError(s.t, err)
	c := New(Options{
		Orchestrator: by, ID: p.ID(), Tree: p, Applied: s.world, Now: Clocked(s.world.Now), InflightBytes: 1 << 20, RequestIDs: NewRequestWindow(4),
	})
	p.Attach(c)
	p.Start(s.world, s.world.Last())
	return p, c
}

func (s *fixture) close() error {
	s.c.Close()
	return s.p.Close()
}

// stall makes the disk hang, or continue.
func (s *fixture) stall(begin bool) {
	s.world.Stall(begin)
	s.c.Wake()
}
