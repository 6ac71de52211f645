package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// The operations of a trial of snapshots.
const (
	snapshotPut = iota
	snapshotTake
	snapshotDrop
	snapshotKinds
)

var snapshotOperations = []string{"put", "take snapshot", "drop snapshot"}

// SnapshotOperations returns the names of the operations that trials with snapshots count.
func SnapshotOperations() []string { return slices.Clone(snapshotOperations) }

// UnderSnapshots is the result of RunSnapshots: updates without and with snapshots.
type UnderSnapshots struct {
	Writers int                `json:"writers"`
	Puts    loadgen.Comparison `json:"puts"`

	Trials []loadgen.NamedTrial `json:"-"` // in the order they ran
}

// RunSnapshots compares the rate at which span.Workers update uniformly drawn records
// with and without snapshots. A snapshot is taken every second and dropped when the
// next one is taken. A snapshot that changes is a wrong answer. Each trial takes
// span.Duration. For how it ends see RunCore: it returns what was measured until then,
// and interrupted rounds do not count.
func (b *Bench) RunSnapshots(ctx context.Context, rounds int, span loadgen.Span, observer loadgen.Observer) (*UnderSnapshots, error) {
	if err := span.Validate(); err != nil {
		return nil, err
	}
	if span.Operations > 0 {
		return nil, errors.New("snapshots every second need a duration, not a number of operations")
	}
	if _, ok := b.target.(Snapshotter); !ok {
		return nil, errors.New("the target has no snapshots")
	}
	result := &UnderSnapshots{Writers: span.Workers}
	puts, err := loadgen.Compare(ctx, rounds, func(ctx context.Context, with bool) (float64, error) {
		trial, err := b.runUpdates(ctx, with, span, observer)
		name := "puts alone"
		if with {
			name = "puts beside snapshots"
		}
		if trial != nil {
			result.Trials = append(result.Trials, loadgen.NamedTrial{Name: name, Trial: trial})
		}
		if err != nil {
			return 0, err
		}
		return trial.Operation(snapshotOperations[snapshotPut]).OpsPerSecond, nil
	})
	if puts != nil {
		result.Puts = *puts
	}
	return result, err
}

func (b *Bench) runUpdates(ctx context.Context, snapshots bool, span loadgen.Span, observer loadgen.Observer) (*loadgen.Trial, error) {
	t := b.newTrial(span, snapshotOperations, observer)
	var err error
	if t.Cost, err = b.updateCost(); err != nil {
		return nil, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	for i := range span.Workers {
		w := b.newUpdater(i, loadgen.NewTally(snapshotKinds, 0))
		t.Workers = append(t.Workers, loadgen.Worker{Step: w.step, Tally: w.tally})
	}
	if !snapshots {
		return t.Do(ctx)
	}
	w := b.newSnapshotWorker(loadgen.NewTally(snapshotKinds, 0))
	t.Workers = append(t.Workers, loadgen.Worker{Step: w.step, Tally: w.tally, Open: loadgen.NewTimetable(1, 0, nil)})
	result, err := t.Do(ctx)
	if err == nil {
		err = w.drop(context.WithoutCancel(ctx)) // the last one
	}
	return result, errors.Join(err, w.close())
}
