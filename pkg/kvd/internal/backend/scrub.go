package backend

// ScrubStep is kvd.ScrubStep.
type ScrubStep struct {
	Files       int
	Done, Total int64
	Damage      *Damage
}

// Damage is kvd.Damage.
type Damage struct {
	File, Kind  string
	Offset      int64
	Reason      string
	First, Last []byte
}
