package record

// Cut returns a record that has the operations of the first units of another one alone.
// Those of a unit stay together.
//
// Errors: those of Decode.
func Cut(record []byte, units uint32) ([]byte, error) {
	var e Encoder
	partition := -1
	var ops []Op // of one section
	flush := func() {
		if len(ops) == 0 {
			return
		}
		e.Section(partition, len(ops))
		for i := range ops {
			e.Op(ops[i].Unit, ops[i].RequestID, &ops[i].Op)
		}
		ops = ops[:0]
	}
	err := Decode(record, func(op *Op) error {
		if op.Partition != partition {
			flush()
			partition = op.Partition
		}
		if op.Unit < units {
			ops = append(ops, *op)
		}
		return nil
	})
	flush()
	return e.Bytes(), err
}
