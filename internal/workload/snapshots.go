package workload

import (
	"context"
	"errors"
	"fmt"
)

// The operations of a trial of snapshots.
const (
	snapshotPut = iota
	snapshotTake
	snapshotDrop
	snapshotKinds
)

var snapshotOperations = []string{"put", "take snapshot", "drop snapshot"}

// UnderSnapshots is the result of RunSnapshots: updates without and with snapshots.
type UnderSnapshots struct {
	Writers int        `json:"writers"`
	Puts    Comparison `json:"puts"`

	Trials []NamedTrial `json:"-"` // in the order they ran
}

// RunSnapshots compares the rate at which span.Workers update uniformly drawn records
// with and without snapshots. A snapshot is taken every second and dropped when the
// next one is taken. A snapshot that changes is a wrong answer. Each trial takes
// span.Duration. For how it ends see RunCore: it returns what was measured until then,
// and interrupted rounds do not count.
func (b *Bench) RunSnapshots(ctx context.Context, rounds int, span Span, observer TrialObserver) (*UnderSnapshots, error) {
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
	puts, err := compare(ctx, rounds, func(ctx context.Context, with bool) (float64, error) {
		trial, err := b.runUpdates(ctx, with, span, observer)
		name := "puts alone"
		if with {
			name = "puts beside snapshots"
		}
		if trial != nil {
			result.Trials = append(result.Trials, NamedTrial{name, trial})
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

func (b *Bench) runUpdates(ctx context.Context, snapshots bool, span Span, observer TrialObserver) (*Trial, error) {
	t := b.newTrial(span, snapshotOperations, observer)
	var err error
	if t.cost, err = b.updateCost(); err != nil {
		return nil, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	for i := range span.Workers {
		w := b.newUpdater(i, newTally(snapshotKinds))
		t.add(w.tally, w.step)
	}
	if !snapshots {
		return t.run(ctx)
	}
	w := b.newSnapshotWorker(newTally(snapshotKinds))
	t.addPaced(w.tally, w.step, 1)
	result, err := t.run(ctx)
	if err == nil {
		err = w.drop(context.WithoutCancel(ctx)) // the last one
	}
	return result, errors.Join(err, w.close())
}
